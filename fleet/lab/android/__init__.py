"""Programs of a lab phone that Android has and Debian does not have: small scripts over files."""
