"""Files by their content: hashes and their caches, signatures, differences between versions."""
