"""Readers of the output of programs on devices: one module per format, text → numbers with
units.
"""
