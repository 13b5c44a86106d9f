"""A deploy in waves, written down as it goes, and taken up again where it ended."""
