"""The extraction pipeline: candidates, decisions and summary, in at most three model calls.

`digest_by_rules` needs no model and no event loop. `digest` asks a model once for each of the three
steps; whatever it gets wrong, or was not shown, is done by rules instead, and the digest says so.
A digest is a pure value: what it says to write is written by somebody else, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sennit.errors import OutputError, SennitError
from sennit.memory.extraction.dedup import decide_by_rules
from sennit.memory.extraction.extract import extract_by_rules
from sennit.memory.extraction.grounding import Claim, EvidenceChecker
from sennit.memory.extraction.model_decisions import decide_by_model, decision_prompt
from sennit.memory.extraction.prompts import (
    DECIDE_SCHEMA,
    EXTRACT_SCHEMA,
    PROMPTS,
    SUMMARY_SCHEMA,
    Prompts,
    Schema,
)
from sennit.memory.extraction.similarity import Similar
from sennit.memory.extraction.summarize import summary_by_rules, summary_from
from sennit.memory.extraction.transcript import Transcript, material_budget, transcript
from sennit.memory.extraction.utterances import Utterances, read
from sennit.memory.extraction.values import (
    Candidate,
    Digest,
    Extraction,
    MemoryDecision,
    Method,
    Summary,
)
from sennit.messages.codec import dumps
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema
from sennit.operations.output_validation import fitted
from sennit.operations.structured_output import ask
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Usage
from sennit.services.models.request import ModelRequest

MODELS_TOO_SMALL = frozenset({"local"})
"""Models that are shown nothing: the embedded one invents more memories than it finds."""


def digest_by_rules(
    messages: Iterable[Message], similar: Similar, *, injected: Iterable[str] = ()
) -> Digest:
    """Return the digest of messages, without a model.

    `injected` are texts that a program put into the prompts: they are never taken for what
    somebody said, wherever they stand.
    """
    conversation = read(messages, injected)
    found = extract_by_rules(conversation)
    return Digest(
        summary=summary_by_rules(conversation),
        decisions=tuple(decide_by_rules(found.candidates, similar)),
        warnings=found.warnings,
    )


async def digest(
    messages: Iterable[Message],
    similar: Similar,
    *,
    model: Model | None = None,
    injected: Iterable[str] = (),
    prompts: Prompts = PROMPTS,
) -> Digest:
    """The same with a model, if there is one that can do it; never raises for what a model does."""
    if model is None or model.name in MODELS_TOO_SMALL:
        return digest_by_rules(messages, similar, injected=injected)
    conversation = read(messages, injected)
    if not conversation.said:
        return digest_by_rules((), similar)
    return await _ModelExtraction(model, prompts, conversation, similar).digest()


class _ModelExtraction:
    """One conversation, one model, three questions at most."""

    def __init__(
        self, model: Model, prompts: Prompts, conversation: Utterances, similar: Similar
    ) -> None:
        self._model = model
        self._prompts = prompts
        self._conversation = conversation
        self._similar = similar
        self._calls = 0
        self._usage = Usage()
        self._warnings: list[str] = []

    async def digest(self) -> Digest:
        extraction = await self._extracted()
        decisions, decided_by = await self._decided(extraction.candidates)
        summary, summarized_by = await self._summarized()
        return Digest(
            summary=summary,
            decisions=tuple(decisions),
            method=extraction.method,
            summary_method=summarized_by,
            decision_method=decided_by,
            refused=extraction.refused,
            calls=self._calls,
            usage=self._usage,
            warnings=(*extraction.warnings, *self._warnings),
        )

    async def _extracted(self) -> Extraction:
        told = [part for example in self._prompts.examples for part in example]
        letters = self._room(self._prompts.extract, *told, schema=EXTRACT_SCHEMA)
        shown = transcript(self._conversation, letters)
        if not shown.text:
            self._warn(f"No message fits into a prompt for {self._model.name!r}")
        answer = shown.text and await self._asked(
            self._prompts.extract, shown.text, EXTRACT_SCHEMA, self._prompts.examples
        )
        if not answer:
            return extract_by_rules(self._conversation)
        found, refused = _grounded(answer["memories"], EvidenceChecker(shown.shown))
        if refused and not found:
            self._warn(f"Nobody said any of what {self._model.name!r} wanted remembered")
            return replace(extract_by_rules(self._conversation), refused=refused)
        if refused:
            self._warnings.append(f"{refused} memories were refused: nobody had said them.")
        rest = self._rest(shown)
        known = {(one.category, one.text) for one in found}
        found += [one for one in rest.candidates if (one.category, one.text) not in known]
        return replace(rest, candidates=tuple(found), method="model", refused=refused)

    def _rest(self, shown: Transcript) -> Extraction:
        """Return what the rules extract from material that the model did not see in full."""
        left_out = len(shown.left_out)
        if left_out:
            self._warnings.append(
                f"{left_out} of {len(self._conversation.said)} messages did not fit into the "
                f"prompt, whole; rules read them instead."
            )
        return extract_by_rules(Utterances(shown.left_out))

    async def _decided(
        self, candidates: Sequence[Candidate]
    ) -> tuple[list[MemoryDecision], Method]:
        letters = self._room(self._prompts.decide, schema=DECIDE_SCHEMA)
        asked = decision_prompt(candidates, self._similar, letters)
        if asked.left_out:
            self._warnings.append(
                f"{asked.left_out} candidates did not fit into the prompt; rules decided on them."
            )
        answer = asked.text and await self._asked(self._prompts.decide, asked.text, DECIDE_SCHEMA)
        if not answer:
            return decide_by_rules(candidates, self._similar), "rules"
        decisions, overruled = decide_by_model(candidates, self._similar, asked, answer)
        if overruled:
            self._warnings.append(f"Rules decided on {overruled} candidates against the model.")
        return decisions, "model"

    async def _summarized(self) -> tuple[Summary, Method]:
        letters = self._room(self._prompts.summarize, schema=SUMMARY_SCHEMA)
        shown = transcript(self._conversation, letters)
        answer = shown.text and await self._asked(
            self._prompts.summarize, shown.text, SUMMARY_SCHEMA
        )
        if not answer:
            return summary_by_rules(self._conversation), "rules"
        hidden = len(self._conversation.said) - len(shown.shown)
        if hidden:
            self._warnings.append(f"The summary was written without {hidden} messages.")
        return summary_from(answer, self._conversation), "model"

    def _room(self, *told: str, schema: Schema) -> int:
        letters = sum(map(len, told)) + len(dumps(dict(schema)))
        return material_budget(self._model, self._prompts.tokens, letters)

    async def _asked(
        self,
        system: str,
        material: str,
        schema: Schema,
        examples: Iterable[tuple[str, str]] = (),
    ) -> dict[str, Any] | None:
        """The answer, if it has the outer form that was asked for; its items may still be wrong."""
        turns = [{"role": "system", "content": system}]
        for shown, answered in examples:
            turns += [
                {"role": "user", "content": shown},
                {"role": "assistant", "content": answered},
            ]
        turns.append({"role": "user", "content": material})
        wanted = ModelSchema(schema["title"], dict(schema))
        output = wanted if self._model.shapes_output else None
        self._calls += 1
        try:
            reply = await ask(self._model, ModelRequest(messages=turns, output=output))
            self._usage += reply.usage
            return fitted(reply.text, ModelSchema(wanted.name, _outer(schema)))
        except OutputError as error:
            self._warn(f"Model {self._model.name!r} gave no usable answer ({error.problems[0]})")
        except SennitError as error:
            self._warn(f"Model {self._model.name!r} failed ({error})")
        return None

    def _warn(self, what: str) -> None:
        self._warnings.append(f"{what}; rules were used instead.")


def _outer(schema: Schema) -> dict[str, Any]:
    """A schema that asks for the fields and their kinds alone: one bad item spoils no others."""
    kinds = {name: {"type": field["type"]} for name, field in schema["properties"].items()}
    return {"type": "object", "properties": kinds, "required": schema["required"]}


def _grounded(items: Iterable[Any], ground: EvidenceChecker) -> tuple[list[Candidate], int]:
    """Return the grounded claims of a model, each once, and the number refused."""
    found: dict[tuple[str, str], Candidate] = {}
    refused = 0
    for item in items:
        claim = Claim.of(item)
        candidate = claim and ground.candidate(claim)
        if isinstance(candidate, Candidate):
            found.setdefault((candidate.category, candidate.text), candidate)
        else:
            refused += 1
    return list(found.values()), refused
