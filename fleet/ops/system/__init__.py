"""The system of a device: packages, groups, device rules, units, files, FastRPC recipes.

Every module turns what is wanted and what was seen into actions (steps.py); none of them
talks to a device.
"""
