"""Programs that are sent to the device: standard library only, Python 3.8 and newer."""
