"""Local models: list them, check whether one can answer, download more."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from sennit.errors import MissingExtraError

if TYPE_CHECKING:
    from sennit.services.local.weights import Weights


def models_pull(
    model: str = "smollm2-135m",
    *,
    sha256: str | None = None,
    progress: Callable[[int, int | None], object] | None = None,
    folder: str | Path | None = None,
) -> Path:
    """Download a local model's weights; see `sennit.services.local.weights.pull`."""
    from sennit.services.local.weights import pull  # late: imports HTTP modules

    return pull(model, sha256=sha256, progress=progress, folder=folder)


def models_list() -> list[Weights]:
    """List the downloaded models, and those that can be pulled by name."""
    from sennit.services.local.weights import list_weights

    return list_weights()


def check_model(model: str = "local") -> Path | None:
    """Check that a model can run on this machine; return the path of a local model's weights.

    Raises MissingExtraError without the packages it needs, ModelError without the weights.
    Nothing is loaded.
    """
    kind, _, name = model.partition(":")
    if kind == "local":
        from sennit.services.local.model import check

        return check(name or None)
    if find_spec("pydantic_ai") is None:
        raise MissingExtraError.of(f"Model {model!r}", "models")
    return None
