"""A model as a service: its files on the device, its configuration, its measurement."""
