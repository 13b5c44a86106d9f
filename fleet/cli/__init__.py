"""The command line. It makes no decisions of its own: it calls the packages below and shows their
results.
"""
