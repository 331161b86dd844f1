"""Tools: Python functions and MCP servers that a model may call."""
