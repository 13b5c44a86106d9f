"""A model as a service on devices: start, stop, look, tunnel."""
