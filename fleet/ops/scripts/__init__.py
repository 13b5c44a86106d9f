"""POSIX shell scripts that run on the device; values come as arguments or on stdin."""
