"""What Qualcomm AI Hub compiled or linked, as a bundle folder.

Written against the client `qai-hub` 0.56.0 and tested with it; AI Hub itself was never reached.
"""
