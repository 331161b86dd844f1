"""Tool calls of a turn: approval, execution, and what the journal records of them."""
