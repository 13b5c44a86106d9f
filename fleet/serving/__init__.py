"""A model as a service: what runs on the device, how it is kept there, how it is measured."""
