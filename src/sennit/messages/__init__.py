"""Messages: contents, parts, encoding and rendering."""
