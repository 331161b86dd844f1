"""Stores: the Store protocol and its implementations in memory, on SQLite and on PostgreSQL."""
