"""Long-term memory: commits, extraction, retrieval and the virtual file system."""
