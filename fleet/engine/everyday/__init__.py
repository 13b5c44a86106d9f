"""Everyday work on devices: commands, terminals, files and logs."""
