"""What is wrong with a device: one look, checks layer by layer, ranked causes, cures."""
