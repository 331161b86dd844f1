"""Extraction rules for English: clauses, dates, word lists and the facts that clauses state."""
