"""Turns: the loop, its events, streams, tool calls and special turns."""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.turns.cache_report import CachedAnswer, CacheReport
    from sennit.turns.context import ContextItem, ContextNeed, ContextProvider
    from sennit.turns.options import Budget
    from sennit.turns.policies import Policy, Refusal
    from sennit.turns.result import Metrics, Notice
    from sennit.turns.special.definition import greeting, summarize

__all__ = [
    "Budget",
    "CacheReport",
    "CachedAnswer",
    "ContextItem",
    "ContextNeed",
    "ContextProvider",
    "Metrics",
    "Notice",
    "Policy",
    "Refusal",
    "greeting",
    "summarize",
]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    __getattr__ = lazy_exports(
        __name__,
        {
            "cache_report": "CacheReport CachedAnswer",
            "context": "ContextItem ContextNeed ContextProvider",
            "options": "Budget",
            "policies": "Policy Refusal",
            "result": "Metrics Notice",
            "special.definition": "greeting summarize",
        },
    )
