"""Extraction of memories from messages: rules, model prompts, grounding, deduplication."""
