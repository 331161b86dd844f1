"""Services: language models and tools, and the registry that holds them by name."""
