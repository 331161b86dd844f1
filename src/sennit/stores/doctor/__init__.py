"""Integrity checks and repair of a store."""
