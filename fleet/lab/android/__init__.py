"""Programs of a lab phone that Android has and Debian has not: small scripts over files."""
