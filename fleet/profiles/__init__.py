"""Measured runs: reading profiles, keeping records, comparing them, showing them."""
