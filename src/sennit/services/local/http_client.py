"""HTTP client of an engine's loopback port, for tokenising.

xllamacpp has no call for it, but its port, which is open anyway, does. What is said is text to us
and must stay text to the model: the tokens that begin and end a turn have spellings, `<|im_start|>`
say, and llama.cpp reads them wherever they stand in a filled-in template. So `harmless` breaks up
every spelling that this very tokenizer would take for a control token.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from sennit.errors import ModelError

_SECONDS = 30.0
_ROUNDS = 3  # breaking up one token may spell another, in a vocabulary made for that


class EngineClient:
    """Asks the tokenizer of an engine; from any thread, without waiting in line."""

    def __init__(self, address: str, key: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._is_control: dict[str, bool] = {}

    def count(self, text: str) -> int:
        """Return the number of tokens of plain `text`; raises ModelError."""
        return len(self._ids(text, control=False))

    def harmless(self, texts: Sequence[str]) -> list[str]:
        """`texts` with a space inside whatever would be a control token; raises ModelError."""
        kept, rounds = list(texts), 0
        while found := self._controls("\n".join(kept)):
            if rounds == _ROUNDS:
                raise ModelError(
                    f"The local model would read {found[0]!r} in a message as a control token; "
                    f"leave it out.",
                    kind="bad_request",
                )
            longest_first = sorted(found, key=len, reverse=True)
            spelled = re.compile("|".join(map(re.escape, longest_first)))
            kept, rounds = [spelled.sub(_broken_up, text) for text in kept], rounds + 1
        return kept

    def _controls(self, text: str) -> list[str]:
        """The spellings of control tokens in `text`."""
        plain = self._ids(text, control=False)
        if self._ids(text, control=True) == plain:
            return []
        known = set(plain)
        pieces = {
            token["piece"]
            for token in self._tokens(text, control=True, with_pieces=True)
            if token["id"] not in known and isinstance(token["piece"], str)
        }
        return [piece for piece in pieces if self._controls_by_itself(piece)]

    def _controls_by_itself(self, piece: str) -> bool:
        """Return whether it is one, and not an ordinary token that was cut differently beside
        one.
        """
        if piece not in self._is_control:
            as_text, as_control = (self._ids(piece, control=way) for way in (False, True))
            self._is_control[piece] = as_text != as_control
        return self._is_control[piece]

    def _ids(self, text: str, *, control: bool) -> list[int]:
        return self._tokens(text, control=control, with_pieces=False)

    def _tokens(self, text: str, *, control: bool, with_pieces: bool) -> list[Any]:
        body = {"content": text, "parse_special": control, "with_pieces": with_pieces}
        asked = http.client.HTTPConnection(self._host, self._port, timeout=_SECONDS)
        try:
            asked.request("POST", "/tokenize", json.dumps(body), self._headers)
            return json.loads(asked.getresponse().read())["tokens"]
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise ModelError(f"The local model could not read the text: {error!r}") from error
        finally:
            asked.close()


def _broken_up(found: re.Match[str]) -> str:
    spelling = found.group()
    return f"{spelling[0]} {spelling[1:]}" if len(spelling) > 1 else "\ufffd"
