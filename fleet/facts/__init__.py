"""The facts of a device, from one round trip."""
