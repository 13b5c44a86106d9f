"""The doctor: one probe of a device, checks by layer, ranked causes and cures."""
