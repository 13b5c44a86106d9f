"""Leases of boards: the write lease of a session, its states, reservations by people."""
