"""HTTP client of an engine's loopback port, for tokenising.

xllamacpp has no tokenise function, but its HTTP port does. Message text must not be read as control
tokens: those that begin and end a turn have spellings such as `<|im_start|>`, which llama.cpp
recognises anywhere in a rendered template. So `escape_control_tokens` breaks up every spelling that
this tokenizer would read as a control token.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from sennit.errors import ModelError

_TIMEOUT_SECONDS = 30.0
_MAX_ESCAPE_ROUNDS = 3  # escaping one token may spell another in a hostile vocabulary


class EngineClient:
    """A client of an engine's tokenizer; usable from any thread, and not queued behind jobs."""

    def __init__(self, address: str, key: str) -> None:
        parts = urlsplit(address)
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._control_cache: dict[str, bool] = {}

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of plain `text`; raises ModelError."""
        return len(self._ids(text, control=False))

    def escape_control_tokens(self, texts: Sequence[str]) -> list[str]:
        """Return `texts` with a space inserted into each control token; raises ModelError."""
        escaped, rounds = list(texts), 0
        while spellings := self._control_spellings("\n".join(escaped)):
            if rounds == _MAX_ESCAPE_ROUNDS:
                raise ModelError(
                    f"The local model would read {spellings[0]!r} in a message as a control token; "
                    f"leave it out.",
                    kind="bad_request",
                )
            longest_first = sorted(spellings, key=len, reverse=True)
            pattern = re.compile("|".join(map(re.escape, longest_first)))
            escaped, rounds = [pattern.sub(_insert_space, text) for text in escaped], rounds + 1
        return escaped

    def _control_spellings(self, text: str) -> list[str]:
        """Return the spellings of control tokens in `text`."""
        plain = self._ids(text, control=False)
        if self._ids(text, control=True) == plain:
            return []
        text_ids = set(plain)
        pieces = {
            token["piece"]
            for token in self._tokens(text, control=True, with_pieces=True)
            if token["id"] not in text_ids and isinstance(token["piece"], str)
        }
        return [piece for piece in pieces if self._is_control_token(piece)]

    def _is_control_token(self, piece: str) -> bool:
        """Return whether `piece` alone is a control token, not an ordinary neighbour of one."""
        if piece not in self._control_cache:
            as_text, as_control = (self._ids(piece, control=control) for control in (False, True))
            self._control_cache[piece] = as_text != as_control
        return self._control_cache[piece]

    def _ids(self, text: str, *, control: bool) -> list[int]:
        return self._tokens(text, control=control, with_pieces=False)

    def _tokens(self, text: str, *, control: bool, with_pieces: bool) -> list[Any]:
        body = {"content": text, "parse_special": control, "with_pieces": with_pieces}
        connection = http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("POST", "/tokenize", json.dumps(body), self._headers)
            return json.loads(connection.getresponse().read())["tokens"]
        except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
            raise ModelError(f"The local model could not read the text: {error!r}") from error
        finally:
            connection.close()


def _insert_space(match: re.Match[str]) -> str:
    spelling = match.group()
    return f"{spelling[0]} {spelling[1:]}" if len(spelling) > 1 else "\ufffd"
