"""Getting models onto this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path


def models_pull(
    model: str = "smollm2-135m",
    *,
    sha256: str | None = None,
    progress: Callable[[int, int | None], object] | None = None,
    folder: str | Path | None = None,
) -> Path:
    """Download a local model's weights; see `sennit.services.weights.pull`."""
    from sennit.services.weights import pull  # loads what speaks to the network

    return pull(model, sha256=sha256, progress=progress, folder=folder)
