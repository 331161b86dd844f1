"""Commits: archive the messages of a branch, extract memories from them, record the result."""
