"""Backup, export and import of sessions."""
