"""Boards with a kernel of their own: real udev and uevents. Slow, opt-in."""
