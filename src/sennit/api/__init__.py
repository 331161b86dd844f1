"""The doors: the public Session, one line to each room below."""
