"""Prompts: a history of messages in the forms that chat APIs accept."""
