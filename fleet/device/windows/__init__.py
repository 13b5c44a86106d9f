"""What Python on the device runs: the work of the device scripts, where no POSIX shell is."""
