"""The PostgreSQL store."""
