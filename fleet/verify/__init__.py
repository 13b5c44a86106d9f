"""Checks of answers: texts and tensors. This package knows no device."""
