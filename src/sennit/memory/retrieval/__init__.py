"""Retrieval: text and vector search, ranking, and the context of a prompt."""
