"""What programs on devices write: one module a format, text → numbers with units."""
