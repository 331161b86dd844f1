"""The public Session, Client and open(), which delegate to the packages below."""
