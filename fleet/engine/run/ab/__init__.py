"""The comparison `fleet ab`: two releases in turns on each board, until there is an answer."""
