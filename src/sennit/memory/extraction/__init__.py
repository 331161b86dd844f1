"""Extraction of memories from messages: rules, model prompts, grounding, deduplication."""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.memory.extraction.dedup import TextRanker
    from sennit.memory.extraction.extract import extract_by_rules
    from sennit.memory.extraction.pipeline import digest, digest_by_rules
    from sennit.memory.extraction.prompts import PROMPTS
    from sennit.memory.extraction.summarize import abstract, markdown
    from sennit.memory.extraction.utterances import read
    from sennit.memory.extraction.values import Category, KnownMemory

__all__ = [
    "PROMPTS",
    "Category",
    "KnownMemory",
    "TextRanker",
    "abstract",
    "digest",
    "digest_by_rules",
    "extract_by_rules",
    "markdown",
    "read",
]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    __getattr__ = lazy_exports(
        __name__,
        {
            "dedup": "TextRanker",
            "extract": "extract_by_rules",
            "pipeline": "digest digest_by_rules",
            "prompts": "PROMPTS",
            "summarize": "abstract markdown",
            "utterances": "read",
            "values": "Category KnownMemory",
        },
    )
