"""A model as a service on devices: start, stop, status, tunnel."""
