"""The system of a device: packages, groups, device rules, units, files, FastRPC recipes.

Every module turns desired and observed state into actions (step.py); none of them talks to a
device.
"""
