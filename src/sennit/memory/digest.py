"""Thinking about messages as a whole: summary, extraction and decisions, in at most three calls.

`digest_by_rules` needs no model and no event loop. `digest` asks a model once for each of the three
steps; whatever it gets wrong is done by rules instead, and the digest says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from sennit.memory.prompts import PROMPTS, Prompts
from sennit.memory.values import Candidate, Digest, Known
from sennit.messages.message import Message
from sennit.services.model import Model

Similar: TypeAlias = Callable[[Candidate], Sequence[Known]]
"""Known memories of the candidate's owner and category, the most similar first."""


def digest_by_rules(
    messages: Iterable[Message], similar: Similar, *, injected: Iterable[str] = ()
) -> Digest:
    """What the messages give, without a model.

    `injected` are texts that a program put into the prompts: they are never taken for what the
    user said, wherever they stand.
    """
    raise NotImplementedError


async def digest(
    messages: Iterable[Message],
    similar: Similar,
    *,
    model: Model | None = None,
    injected: Iterable[str] = (),
    prompts: Prompts = PROMPTS,
) -> Digest:
    """The same with a model, if there is one that can do it; never raises for what a model says."""
    raise NotImplementedError
