"""Sessions and branches: shared history, forks and grants."""
