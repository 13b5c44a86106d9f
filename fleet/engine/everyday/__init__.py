"""What people do with devices every day: commands, terminals, files, logs."""
