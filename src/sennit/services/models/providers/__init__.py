"""Providers of language models, reached through pydantic-ai."""
