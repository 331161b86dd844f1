"""Replies of Google's Gemini API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from json import dumps
from typing import Any, cast

from sennit.ids import new_id
from sennit.services.models.providers.items import array, mapping
from sennit.services.models.providers.replies.reader import (
    JSON,
    ReplyReader,
    RequestUsage,
    count,
)
from sennit.services.models.reply import CallDelta, Delta, FinishReason, ReasoningDelta, TextDelta

_REASONS: Mapping[str, FinishReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    **dict.fromkeys(
        (
            "SAFETY",
            "RECITATION",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "IMAGE_SAFETY",
            "IMAGE_PROHIBITED_CONTENT",
            "IMAGE_RECITATION",
            "MODEL_ARMOR",
        ),
        "refusal",
    ),
    **dict.fromkeys(
        (
            "LANGUAGE",
            "MALFORMED_FUNCTION_CALL",
            "UNEXPECTED_TOOL_CALL",
            "TOO_MANY_TOOL_CALLS",
            "MISSING_THOUGHT_SIGNATURE",
            "MALFORMED_RESPONSE",
            "NO_IMAGE",
            "IMAGE_OTHER",
        ),
        "error",
    ),
}
_DETAILS = (
    "finishMessage",
    "groundingMetadata",
    "citationMetadata",
    "urlContextMetadata",
    "safetyRatings",
    "logprobsResult",
    "avgLogprobs",
)
_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class GoogleReader(ReplyReader):
    """Reads a response, whose items are the parts of its first candidate."""

    def __init__(self, provider: str, url: str) -> None:
        super().__init__(provider, url)
        self._parts: list[dict[str, Any]] = []
        self._pieces: list[str] = []
        """The pieces of the text that is still arriving, the last part."""
        self._open: dict[str, Any] | None = None
        """The part with the call whose arguments are still arriving."""

    def event(self, event: JSON) -> Iterator[Delta]:
        self.model = event.get("modelVersion") or self.model
        if usage := event.get("usageMetadata"):
            self._spend(usage)
        for candidate in array(event.get("candidates")):
            if candidate.get("index"):
                continue  # another version of the reply
            for part in array(mapping(candidate.get("content")).get("parts")):
                yield from self._part(dict(part))
            yield from self._stop(candidate)
        match event.get("promptFeedback"):
            case {"blockReason": reason, **feedback}:
                self.keep(event, "promptFeedback")
                self.reason = "refusal"
                yield from self._explanation(feedback.get("blockReasonMessage"), reason)
            case _:
                pass

    def whole(self, body: JSON) -> Iterator[Delta]:
        yield from self.event(body)

    def _part(self, part: dict[str, Any]) -> Iterator[Delta]:
        call = part.get("functionCall")
        if call is not None and (self._open or call.get("willContinue") or call.get("partialArgs")):
            yield from self._call_piece(part, call)
            return
        match part:
            case {"functionCall": {"name": str(name), **call}}:
                self._append(part)
                if not (id := call.get("id")):
                    id = self.made_ids[len(self._parts) - 1] = f"call_{new_id().hex}"
                arguments = dumps(call.get("args") or {}, ensure_ascii=False)
                yield CallDelta(self.next_call(), id, name, arguments)
            case {"text": str(text)}:
                if not text and len(part) == 1:
                    return
                self._text(part)
                if text:
                    yield ReasoningDelta(text) if part.get("thought") else TextDelta(text)
            case _ if part:
                self._append(part)
            case _:
                pass

    def _append(self, part: dict[str, Any]) -> None:
        self._close_text()
        self._parts.append(part)

    def _text(self, part: dict[str, Any]) -> None:
        """Add a text; texts join unless one is signed, because a signature is of its own part."""
        last = self._parts[-1] if self._parts else {}
        if part.keys() == last.keys() <= {"text", "thought"} and "text" in last:
            self._pieces.append(part["text"])
        else:
            self._append(part)
            self._pieces = [part["text"]]

    def _close_text(self) -> None:
        if len(self._pieces) > 1:
            self._parts[-1]["text"] = "".join(self._pieces)
        self._pieces = []

    def _call_piece(self, part: dict[str, Any], call: JSON) -> Iterator[Delta]:
        """Add a piece of a call, which is shown when it is complete."""
        if self._open is None:
            self._open = {**part, "functionCall": {**call}}
        whole = self._open
        if signature := part.get("thoughtSignature"):
            whole.setdefault("thoughtSignature", signature)
        function: dict[str, Any] = whole["functionCall"]
        arguments: dict[str, Any] = function.get("args") or {}
        function["args"] = arguments
        for piece in call.get("partialArgs") or ():
            _set_argument(arguments, piece)
        if not call.get("willContinue"):
            function.pop("partialArgs", None)
            function.pop("willContinue", None)
            self._open = None
            yield from self._part(whole)

    def _stop(self, candidate: JSON) -> Iterator[Delta]:
        self.keep(candidate, *_DETAILS)
        if not (reason := candidate.get("finishReason")):
            return
        self.reason = _REASONS.get(reason, "stop")
        if reason not in ("STOP", "MAX_TOKENS"):
            self.details["finishReason"] = reason
        if self.reason == "refusal":
            yield from self._explanation(candidate.get("finishMessage"), reason)

    def _explanation(self, text: Any, reason: str) -> Iterator[Delta]:
        """Show why a reply without any part was refused."""
        if not self._parts:
            yield from self._part({"text": text or f"The provider refused to answer: {reason}."})

    def _spend(self, usage: JSON) -> None:
        """Take the usage so far; it is cumulative."""
        thoughts = count(usage.get("thoughtsTokenCount"))
        tools = count(usage.get("toolUsePromptTokenCount"))
        self.usage = RequestUsage(
            input_tokens=count(usage.get("promptTokenCount")) + tools,
            output_tokens=count(usage.get("candidatesTokenCount")) + thoughts,
            cache_read_tokens=count(usage.get("cachedContentTokenCount")),
            details={"reasoning_tokens": thoughts},
        )

    def items(self) -> Sequence[JSON]:
        self._close_text()
        return self._parts


def _set_argument(arguments: dict[str, Any], piece: JSON) -> None:
    """Set the value at a path such as "$.places[0].name"; text is added to text."""
    steps = [
        int(index) if index else name
        for name, index in _PATH_STEP.findall((piece.get("jsonPath") or "").removeprefix("$"))
    ]
    if not steps:
        return
    names = ("stringValue", "numberValue", "boolValue")
    value: Any = next((piece[name] for name in names if piece.get(name) is not None), None)
    place: Any = arguments
    for step, following in pairwise(steps):
        place = _entry(place, step, [] if isinstance(following, int) else {})
    before = _entry(place, steps[-1], None)
    is_more = isinstance(before, str) and isinstance(value, str)
    place[steps[-1]] = f"{before}{value}" if is_more else value


def _entry(place: Any, step: Any, default: Any) -> Any:
    if isinstance(place, dict):
        return cast("dict[Any, Any]", place).setdefault(step, default)
    while len(place) <= step:
        place.append(default)
    return place[step]
