"""What is said: contents, messages, parts, and how they read."""
