"""Files by their content: hashes and their caches, signatures, what differs between versions."""
