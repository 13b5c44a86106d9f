"""Models that Qualcomm AI Hub compiled or linked, pulled into a bundle folder.

The package is written for the client `qai-hub` 0.56.0 and tested with it. It was never tested with
AI Hub itself.
"""
