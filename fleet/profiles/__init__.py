"""Measured runs: reading profiles, storing records, comparing them and presenting them."""
