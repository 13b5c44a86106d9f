"""Bulk data to many devices: carriers, shared reading, limits, deltas, compression."""
