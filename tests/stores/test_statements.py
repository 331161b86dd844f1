"""No statement or key reaches what belongs to all owners, but for a few that look at no content."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.resources import files

import pytest

from sennit.stores.sql.connection import Sql

FREE = {
    "sql.statements": set[str](),
    "postgres.detached_statements": set[str](),
    "postgres.search_statements": set[str](),
    "postgres.vectors": {"PREPARE", "IS_AVAILABLE", "IS_PREPARED"},
    # Messages are numbered over all owners, and indexed in the order of their numbers.
    "sqlite.statements": {"LAST_MESSAGE"},
    "sqlite.detached_statements": set[str](),
    "sqlite.erase_statements": set[str](),
    "sqlite.search_statements": {
        *{
            "MARK",
            "SET_MARK",
            "LOWER_MARK",
            "IS_COMPLETE",
            "ADD_WORDS",
            "DROP_WORDS",
            "MERGE_INDEX",
        },
        *{"COUNT_ERASED", "ERASED", "SET_MERGED", "HAS_FILES", "ALL_FILES"},
    },
    # A series is of one owner, and was found by them.
    "sqlite.vectors": {"SET_MARKS", "VECTORS"},
}


@pytest.mark.parametrize("module", FREE)
def test_every_statement_names_the_owner(module: str) -> None:
    named = vars(import_module(f"sennit.stores.{module}"))
    statements = [
        (name, text)
        for name, value in named.items()
        for statement in (value if isinstance(value, tuple) else (value,))
        for text in _texts(statement)
        if not name.startswith("_") and _is_statement(text)
    ]
    assert len(statements) > 5
    assert {name for name, text in statements if "owner" not in text} == FREE[module]


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, Sql):
        return value.postgres, value.sqlite
    return (value,) if isinstance(value, str) else ()


def _is_statement(text: str) -> bool:
    return re.search(r"\b(SELECT|INSERT|UPDATE|DELETE)\b", text) is not None


# Who the owners are; marks, versions and receipts, which hold nothing of what was said; vectors,
# which belong to a series of one owner.
KEYED_OTHERWISE = {
    "sqlite": {"owners", "indexed", "vectors"},
    "postgres": {"owners", "schema", "receipts"},
}


@pytest.mark.parametrize("store", KEYED_OTHERWISE)
def test_every_key_begins_with_the_owner(store: str) -> None:
    schema = (files(f"sennit.stores.{store}") / "schema.sql").read_text(encoding="utf-8")
    tables = re.findall(r"CREATE TABLE (?:sennit\.)?(\w+) \((.*?)\n?\)[^)]*;", schema, re.DOTALL)
    assert len(tables) > 15
    assert {name for name, columns in tables if not _is_owned(columns)} == KEYED_OTHERWISE[store]


def _is_owned(columns: str) -> bool:
    keys = re.findall(r"(?:PRIMARY KEY|UNIQUE) \((\w+)", columns)
    return re.search(r"^\s+owner \w+ NOT NULL", columns, re.MULTILINE) is not None and set(
        keys
    ) <= {"owner"}
