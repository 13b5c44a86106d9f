"""Plan, apply and run over many devices; events and records."""
