"""Policies: hooks that may change or refuse requests and replies.

A policy sees the whole request just before it is sent, and the whole reply before it counts,
streamed or not; it may change or refuse either. A reply that no reply policy has seen is never on
the branch: one that breaks off is dropped, and if increments of it were published, an event says
that they are void. A policy that raises ends the run, because a rule that cannot be checked does
not hold.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, Protocol, TypeAlias, cast

from sennit.errors import InvalidTypeError, PolicyError, short_repr
from sennit.services.models.reply import Reply
from sennit.services.models.request import ModelRequest

_HOOKS = ("on_request", "on_response")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Returned by a policy to refuse; the run ends with an error that gives the reason."""

    reason: str
    """Why the request or reply was refused."""


RequestDecision: TypeAlias = (
    ModelRequest | Refusal | Awaitable[ModelRequest | Refusal | None] | None
)
"""Another request, a refusal, or None for no change; or a coroutine that returns one of these."""
ReplyDecision: TypeAlias = Reply | Refusal | Awaitable[Reply | Refusal | None] | None
"""Another reply, a refusal, or None for no change; or a coroutine that returns one of these."""


class Policy:
    """A policy for requests to a model and for its replies: override the methods you need.

    Each method may be async and may return None for no change. Policies are applied in order, each
    to the result of those before it.
    """

    def on_request(self, request: ModelRequest) -> RequestDecision:
        """Handle a request before it is sent: return another ModelRequest, a Refusal, or None."""

    def on_response(self, request: ModelRequest, reply: Reply) -> ReplyDecision:
        """Handle a reply: return another Reply, a Refusal, or None."""


class RequestPolicy(Protocol):
    """Any object with the `on_request` of a Policy."""

    def on_request(self, request: ModelRequest, /) -> RequestDecision:
        """Handle a request before it is sent."""
        ...


class ReplyPolicy(Protocol):
    """Any object with the `on_response` of a Policy."""

    def on_response(self, request: ModelRequest, reply: Reply, /) -> ReplyDecision:
        """Handle a reply."""
        ...


PolicySource: TypeAlias = Policy | RequestPolicy | ReplyPolicy


def checked_policies(policies: Any) -> tuple[Any, ...]:
    """Return the policies as a tuple; raises InvalidTypeError for an object with neither method."""
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
    """Return whether any policy handles replies."""
    hooks = (getattr(policy, "on_response", None) for policy in policies)
    return any(
        hook is not None and getattr(hook, "__func__", None) is not Policy.on_response
        for hook in hooks
    )


async def pass_request(policies: Iterable[Any], request: ModelRequest) -> ModelRequest:
    """Return the request after all policies; raises PolicyError."""
    for policy in policies:
        request = await _apply_hook(policy, "on_request", request, request)
    return request


async def pass_reply(policies: Iterable[Any], request: ModelRequest, reply: Reply) -> Reply:
    """Return the reply after all policies; raises PolicyError."""
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
