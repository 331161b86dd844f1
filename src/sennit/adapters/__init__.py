"""Sennit for programs that are written for another framework; each adapter is a module here."""
