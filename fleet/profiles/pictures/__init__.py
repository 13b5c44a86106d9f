"""Charts made of characters, for a terminal."""
