"""Text and vector search, as far as the stores share it."""
