"""Whether an answer is right: checks of texts and tensors. Knows no device."""
