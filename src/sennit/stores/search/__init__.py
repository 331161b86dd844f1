"""Text and vector search code that the stores share."""
