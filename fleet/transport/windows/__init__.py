"""Devices with Windows behind OpenSSH: PowerShell starts the work, Python on the device does it."""
