"""Boards with a kernel of their own: real udev, systemd, reboot and power cut. Slow, opt-in."""
