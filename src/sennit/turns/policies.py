"""Policies: hooks that may change or refuse requests and replies.

A policy sees the whole request just before it is sent, and the whole reply before any of it counts,
streamed or not; it may change or refuse either. What a reply policy has not seen never stands on
the branch: a reply that breaks off before its end is dropped, and if pieces of it were shown, that
they do not count is told. A policy that fails ends the run, because a rule that cannot be checked
does not hold.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, cast

from sennit.errors import InvalidTypeError, PolicyError, short_repr
from sennit.services.models.reply import Reply
from sennit.services.models.request import ModelRequest

_HOOKS = ("on_request", "on_response")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Returned by a policy to refuse; the run ends with an error that gives the reason."""

    reason: str


class Policy:
    """A rule for what goes to a model and what comes back: override what you need.

    Each method may be async. None leaves things as they are; several policies see, one after
    another, what those before them gave.
    """

    def on_request(self, request: ModelRequest) -> Any:
        """Before a model is asked: give another ModelRequest, a Refusal, or None."""

    def on_response(self, request: ModelRequest, reply: Reply) -> Any:
        """Handle a reply: return another Reply, a Refusal, or None."""


def checked_policies(policies: Any) -> tuple[Any, ...]:
    """Policies as a tuple; raises InvalidTypeError for what has neither method."""
    if not isinstance(policies, Iterable):
        raise InvalidTypeError(f"policies must be a list of policies, got {short_repr(policies)}.")
    checked = tuple(cast("Iterable[Any]", policies))
    for policy in checked:
        if not any(callable(getattr(policy, hook, None)) for hook in _HOOKS):
            raise InvalidTypeError(
                f"A policy has on_request or on_response (see Policy), got {short_repr(policy)}."
            )
    return checked


def has_reply_policies(policies: Iterable[Any]) -> bool:
    """Return whether any of them looks at replies."""
    hooks = (getattr(policy, "on_response", None) for policy in policies)
    return any(
        hook is not None and getattr(hook, "__func__", None) is not Policy.on_response
        for hook in hooks
    )


async def pass_request(policies: Iterable[Any], request: ModelRequest) -> ModelRequest:
    """The request as the policies leave it; raises PolicyError."""
    for policy in policies:
        request = await _apply_hook(policy, "on_request", request, request)
    return request


async def pass_reply(policies: Iterable[Any], request: ModelRequest, reply: Reply) -> Reply:
    """The reply as the policies leave it; raises PolicyError."""
    for policy in policies:
        reply = await _apply_hook(policy, "on_response", reply, request, reply)
    return reply


async def _apply_hook(policy: Any, hook: str, current: Any, *arguments: object) -> Any:
    method = getattr(policy, hook, None)
    if method is None:
        return current
    name = f"{type(policy).__name__}.{hook}"
    try:
        result = method(*arguments)
        result = await result if isawaitable(result) else result
    except Exception as error:
        raise PolicyError(f"Policy {name} raised {type(error).__name__}: {error}") from error
    if isinstance(result, Refusal):
        raise PolicyError(f"Policy {name} refused: {result.reason}", kind="refused")
    if result is not None and not isinstance(result, type(current)):
        raise PolicyError(
            f"Policy {name} returned {short_repr(result)}; it must return a "
            f"{type(current).__name__}, a Refusal, or None for no change."
        )
    return current if result is None else result
