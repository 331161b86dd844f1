"""Rows of the full-text index in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sennit.stores.postgres import search_statements as sql
from sennit.stores.search import tokenizer
from sennit.stores.sql.connection import SqlConnection

PIECE = 50_000
"""Maximum characters of a piece, so that it fits a tsvector (one megabyte)."""
_PIECE_OF_LETTERS = 8_000  # a tsvector keeps only the first 256 positions of a lexeme


def add_words(connection: SqlConnection, owner: int, rows: Sequence[Any]) -> None:
    """Index messages, given as session, number, time and body."""
    pieces = [
        (session, number, f"{owner_mark(owner)} {piece}")
        for session, number, created, body in rows
        for piece in _pieces(tokenizer.indexed_text(body, created))
    ]
    if pieces:
        sessions, messages, texts = map(list, zip(*pieces, strict=True))
        values = {"owner": owner, "sessions": sessions, "messages": messages, "said": texts}
        connection.run(sql.ADD_WORDS, **values)


def _pieces(text: str) -> list[str]:
    """Split a text into pieces that fit a tsvector and keep all positions for phrase search."""
    size = _PIECE_OF_LETTERS if tokenizer.is_unspaced(text) else PIECE
    return tokenizer.pieces(tokenizer.normalize(text), size)


def owner_mark(owner: int) -> str:
    """Return the word that marks an owner's messages; its dot cannot come from a text."""
    return f"o{owner}.sennit"
