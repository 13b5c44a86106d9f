"""Programs of fleet for devices with Python. They are sent together with their data."""
