"""Programs of ours that run on a device which has Python; sent with the data they are for."""
