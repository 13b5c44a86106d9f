"""Qualcomm's own AARCH64 libraries under qemu-user: true 14001 chains. Slow, opt-in."""
