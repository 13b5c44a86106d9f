"""Facts of a device, from one round trip."""
