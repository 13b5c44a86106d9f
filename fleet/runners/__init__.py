"""Runners: what to start on a device, what to collect, how to read it."""
