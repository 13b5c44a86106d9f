"""Bundles: what a folder holds, what it needs, and whether it can run on a device."""
