"""Every word that memory says to a model, in one place, and all of it yours to change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """What a model is told; replace one with `dataclasses.replace(PROMPTS, extract="...")`."""

    extract: str
    decide: str
    summarize: str
    tokens: int = 12_000
    """The most that one prompt may hold, about; less if the model's window is smaller."""


PROMPTS = Prompts(extract="", decide="", summarize="")
