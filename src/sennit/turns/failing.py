"""The result of a run that failed."""

from __future__ import annotations

from asyncio import CancelledError

from sennit.errors import ConflictError, ModelError, NothingToAskError, SennitError
from sennit.turns.result import Notice
from sennit.turns.run import Run
from sennit.turns.step import Stop

_SELF_CANCELLED = (
    "Code that the run calls (the model, a policy or a context provider) raised CancelledError, "
    "though nobody has cancelled the run."
)


def stop_for_error(run: Run, error: Exception | CancelledError) -> Stop:
    """The end of a run in which a model failed, the store, or code plugged in."""
    if isinstance(error, CancelledError):
        error = ModelError(_SELF_CANCELLED, kind="failed")
    run.error = error
    if isinstance(error, NothingToAskError):
        return Stop("invalid", (Notice("error", "empty", str(error)),))
    text = str(error) if isinstance(error, SennitError) else f"{type(error).__name__}: {error}"
    code = "lost_lease" if isinstance(error, ConflictError) else type(error).__name__
    return Stop("error", (Notice("error", getattr(error, "kind", code), text),))
