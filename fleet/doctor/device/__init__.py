"""Programs of ours that run on the device. They need python3 with ctypes, nothing else."""
