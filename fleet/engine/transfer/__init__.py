"""Bulk data onto many devices: carriers, shared reading, limits, what differs, what compresses."""
