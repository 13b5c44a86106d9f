"""The plain data that all other packages share. It imports no other fleet package."""
