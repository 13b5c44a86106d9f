"""Bundles: the files of a folder, its needs, and the check of a bundle against a device."""
