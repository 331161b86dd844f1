"""Models on this machine: which there are, whether one can answer, and getting more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sennit.services.weights import Weights


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


def models_list() -> list[Weights]:
    """The local models that are here, and those that can be pulled by name."""
    from sennit.services.weights import listed

    return listed()


def models_check(model: str = "local") -> Path:
    """The weights of "local" or "local:name"; raises what would keep it from answering.

    That is MissingExtraError without the engine, or ModelError without the weights.
    """
    from sennit.services.local import check

    return check(model.partition(":")[2] or None)
