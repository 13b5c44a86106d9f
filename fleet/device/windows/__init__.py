"""The work of the device scripts in Python, for devices without a POSIX shell."""
