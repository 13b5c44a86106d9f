"""Leases of boards: the write lease of a session, its states, and reservations by people."""
