"""The way from facts and desired state to actions, and the device scripts that execute them."""
