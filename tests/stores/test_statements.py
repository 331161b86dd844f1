"""No statement reaches what belongs to all owners, but for a few that look at no content."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

FREE = {
    "postgres_files": set[str](),
    "postgres_words": set[str](),
    "postgres_vectors": {"PREPARE", "IS_AVAILABLE", "IS_PREPARED"},
    # Messages are numbered over all owners, and indexed in the order of their numbers.
    "sqlite": {"LAST_MESSAGE"},
    "sqlite_files": set[str](),
    "sqlite_words": {
        *{"MARK", "SET_MARK", "LOWER_MARK", "UNINDEXED", "ADD_WORDS", "DROP_WORDS", "MERGE_INDEX"},
        *{"COUNT_ERASED", "HAS_ERASED", "SET_MERGED", "HAS_FILES", "ALL_FILES"},
    },
    # A series is of one owner, and was found by them.
    "sqlite_vectors": {"SET_MARKS", "VECTORS"},
}


@pytest.mark.parametrize("module", FREE)
def test_every_statement_names_the_owner(module: str) -> None:
    named = vars(import_module(f"sennit.stores.sql.{module}"))
    statements = [
        (name, text)
        for name, value in named.items()
        for text in (value if isinstance(value, tuple) else (value,))
        if not name.startswith("_") and isinstance(text, str) and _is_statement(text)
    ]
    assert len(statements) > 5
    assert {name for name, text in statements if "owner" not in text} == FREE[module]


def _is_statement(text: str) -> bool:
    return re.search(r"\b(SELECT|INSERT|UPDATE|DELETE)\b", text) is not None
