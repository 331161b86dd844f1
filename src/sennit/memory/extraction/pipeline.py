"""The extraction pipeline: candidates, decisions and summary, in at most three model calls.

`digest_by_rules` needs no model and no event loop. `digest` calls a model once for each of the
three steps; what the model gets wrong, or was not shown, is left to the rules, and the digest has a
warning. A digest is a pure value: writing it is left to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sennit.errors import OutputError, SennitError
from sennit.memory.extraction.dedup import Similar, decide_by_rules
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
from sennit.memory.extraction.summarize import summary_by_rules, summary_from
from sennit.memory.extraction.utterances import (
    Utterances,
    read,
    transcript,
)
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
from sennit.messages.output_validation import validate_output
from sennit.operations.structured_output import ask
from sennit.services.models.protocol import Model
from sennit.services.models.reply import Usage
from sennit.services.models.request import ModelRequest

_CHARS_PER_TOKEN = 4
_ANSWER_TOKENS = 2000
MODELS_TOO_SMALL = frozenset({"local"})
"""Models that are not used: the embedded one invents more memories than it finds."""


def digest_by_rules(
    messages: Iterable[Message], similar: Similar, *, injected: Iterable[str] = ()
) -> Digest:
    """Return the digest of messages, without a model.

    `injected` are texts that a program put into the prompts: they are never extracted as something
    that was said.
    """
    conversation = read(messages, injected)
    extraction = extract_by_rules(conversation)
    return Digest(
        summary=summary_by_rules(conversation),
        decisions=tuple(decide_by_rules(extraction.candidates, similar)),
        warnings=extraction.warnings,
    )


async def digest(
    messages: Iterable[Message],
    similar: Similar,
    *,
    model: Model | None = None,
    injected: Iterable[str] = (),
    prompts: Prompts = PROMPTS,
) -> Digest:
    """Return the digest of messages by a model, or by rules if there is none or it fails."""
    if model is None or model.name in MODELS_TOO_SMALL:
        return digest_by_rules(messages, similar, injected=injected)
    conversation = read(messages, injected)
    if not conversation.items:
        return digest_by_rules((), similar)
    return await _ModelExtraction(model, prompts, conversation, similar).digest()


class _ModelExtraction:
    """The extraction from one conversation by one model, in at most three calls."""

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
        extraction = await self._extract()
        decisions, decided_by = await self._decide(extraction.candidates)
        summary, summarized_by = await self._summarize()
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

    async def _extract(self) -> Extraction:
        example_texts = [part for example in self._prompts.examples for part in example]
        chars = self._budget(self._prompts.extract, *example_texts, schema=EXTRACT_SCHEMA)
        shown = transcript(self._conversation, chars)
        if not shown.text:
            self._warn(f"No message fits into a prompt for {self._model.name!r}")
        answer = shown.text and await self._ask(
            self._prompts.extract, shown.text, EXTRACT_SCHEMA, self._prompts.examples
        )
        if not answer:
            return extract_by_rules(self._conversation)
        candidates, refused = _ground(answer["memories"], EvidenceChecker(shown.shown))
        if refused and not candidates:
            self._warn(f"Nobody said any of what {self._model.name!r} wanted remembered")
            return replace(extract_by_rules(self._conversation), refused=refused)
        if refused:
            self._warnings.append(f"{refused} memories were refused: nobody had said them.")
        if shown.left_out:
            self._warnings.append(
                f"{len(shown.left_out)} of {len(self._conversation.items)} messages did not fit "
                f"into the prompt, whole; rules read them instead."
            )
        rest = extract_by_rules(Utterances(shown.left_out))
        seen = {(candidate.category, candidate.text) for candidate in candidates}
        candidates += [
            candidate
            for candidate in rest.candidates
            if (candidate.category, candidate.text) not in seen
        ]
        return replace(rest, candidates=tuple(candidates), method="model", refused=refused)

    async def _decide(self, candidates: Sequence[Candidate]) -> tuple[list[MemoryDecision], Method]:
        chars = self._budget(self._prompts.decide, schema=DECIDE_SCHEMA)
        prompt = decision_prompt(candidates, self._similar, chars)
        if prompt.left_out:
            self._warnings.append(
                f"{prompt.left_out} candidates did not fit into the prompt; rules decided on them."
            )
        answer = prompt.text and await self._ask(self._prompts.decide, prompt.text, DECIDE_SCHEMA)
        if not answer:
            return decide_by_rules(candidates, self._similar), "rules"
        decisions, overruled = decide_by_model(candidates, self._similar, prompt, answer)
        if overruled:
            self._warnings.append(f"Rules decided on {overruled} candidates against the model.")
        return decisions, "model"

    async def _summarize(self) -> tuple[Summary, Method]:
        chars = self._budget(self._prompts.summarize, schema=SUMMARY_SCHEMA)
        shown = transcript(self._conversation, chars)
        answer = shown.text and await self._ask(self._prompts.summarize, shown.text, SUMMARY_SCHEMA)
        if not answer:
            return summary_by_rules(self._conversation), "rules"
        hidden = len(self._conversation.items) - len(shown.shown)
        if hidden:
            self._warnings.append(f"The summary was written without {hidden} messages.")
        return summary_from(answer, self._conversation), "model"

    def _budget(self, *texts: str, schema: Schema) -> int:
        """Return the characters left for material beside these texts and a schema."""
        window, tokens = self._model.window, self._prompts.tokens
        if window is not None:
            tokens = min(tokens, max(0, window - _ANSWER_TOKENS))
        chars = sum(map(len, texts)) + len(dumps(dict(schema)))
        return max(0, tokens * _CHARS_PER_TOKEN - chars)

    async def _ask(
        self, system: str, material: str, schema: Schema, examples: Iterable[tuple[str, str]] = ()
    ) -> dict[str, Any] | None:
        """Return the model's answer if its outer form is valid; its items may not be."""
        turns = [{"role": "system", "content": system}]
        for question, reply in examples:
            turns += [
                {"role": "user", "content": question},
                {"role": "assistant", "content": reply},
            ]
        turns.append({"role": "user", "content": material})
        output_schema = ModelSchema(schema["title"], dict(schema))
        output = output_schema if self._model.supports_output_schema else None
        self._calls += 1
        try:
            reply = await ask(self._model, ModelRequest(messages=turns, output=output))
            self._usage += reply.usage
            return validate_output(
                reply.text, ModelSchema(output_schema.name, _outer_schema(schema))
            )
        except OutputError as error:
            self._warn(f"Model {self._model.name!r} gave no usable answer ({error.problems[0]})")
        except SennitError as error:
            self._warn(f"Model {self._model.name!r} failed ({error})")
        return None

    def _warn(self, problem: str) -> None:
        self._warnings.append(f"{problem}; rules were used instead.")


def _outer_schema(schema: Schema) -> dict[str, Any]:
    """Return a schema of the fields alone, so that one bad item spoils no others."""
    kinds = {name: {"type": field["type"]} for name, field in schema["properties"].items()}
    return {"type": "object", "properties": kinds, "required": schema["required"]}


def _ground(items: Iterable[Any], checker: EvidenceChecker) -> tuple[list[Candidate], int]:
    """Return the grounded claims of a model, each once, and the number refused."""
    candidates: dict[tuple[str, str], Candidate] = {}
    refused = 0
    for item in items:
        claim = Claim.of(item)
        candidate = claim and checker.candidate(claim)
        if isinstance(candidate, Candidate):
            candidates.setdefault((candidate.category, candidate.text), candidate)
        else:
            refused += 1
    return list(candidates.values()), refused
