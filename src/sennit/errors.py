"""Exceptions of Sennit.

    SennitError
    ├── ValidationError (ValueError)      a value is not acceptable: caller, give another
    │   ├── InvalidTypeError (TypeError)  it has the wrong type, or an unknown field was named
    │   ├── NothingToAskError             no message for a model to answer: say something first
    │   └── CodecError                    it cannot be encoded, or the bytes cannot be read
    ├── NotFoundError (KeyError)          nothing has that id or name
    ├── OutOfRangeError (IndexError)      a position past either end
    ├── ExistsError (ValueError)          that id or name is taken by something else
    ├── AccessError (PermissionError)     the branch was not granted it
    ├── UsageError (RuntimeError)         called where it cannot work, such as in an event loop
    ├── MissingExtraError (ImportError)   an optional package is not installed: install the extra
    ├── ServiceError                      who was asked could not answer
    │   ├── ModelError                    a model or its provider failed: see its `kind`
    │   ├── OutputError                   its answers do not have the form asked for
    │   ├── PolicyError                   a policy refused what was asked or answered, or failed
    │   ├── RunError                      a run of turns did not end well
    │   └── ToolError                     a tool failed, or was given arguments it does not take
    └── StoreError                        the store cannot: look at the disk, the file, the lock
        ├── ArchiveError                  an archive is damaged, not ours, or hostile
        └── ConflictError                 someone else was faster: refresh and decide again

Each also derives from the built-in that people already catch, so `except KeyError` and
`except PermissionError` keep working. A message names the value, what was expected and the way out.
"""

from collections.abc import Sequence
from typing import Literal, Self, TypeAlias
from uuid import UUID

_SHOWN = 100


def shown(value: object) -> str:
    """`repr(value)`, cut short, for an error message; never fails, whatever the value."""
    try:
        # The repr of a long text is longer still, and nearly all of it would be thrown away.
        text = repr(value[: _SHOWN + 1] if type(value) in (str, bytes) else value)  # pyright: ignore
    except Exception as error:  # a repr may do anything; the error to report is another one
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({type(value).__name__})"


class SennitError(Exception):
    """Root of all errors raised by Sennit on purpose."""


class ValidationError(SennitError, ValueError):
    """A value is not acceptable; nothing was changed."""


class NothingToAskError(ValidationError):
    """A model was to be asked with no message that it could answer; it was not asked."""


class InvalidTypeError(ValidationError, TypeError):
    """A value has the wrong type, or a field that does not exist was named."""


class CodecError(ValidationError):
    """Something cannot be encoded, or bytes cannot be read back."""


class NotFoundError(SennitError, KeyError):
    """Nothing here has that id or name."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which would put quotes around a sentence.
        return Exception.__str__(self)


class OutOfRangeError(SennitError, IndexError):
    """A position lies past either end."""


class ExistsError(SennitError, ValueError):
    """That id or name is already taken by something else."""


class AccessError(SennitError, PermissionError):
    """The branch was not granted what was asked for."""


class UsageError(SennitError, RuntimeError):
    """Something was called where it cannot work; the message names what to call instead."""


class MissingExtraError(SennitError, ImportError):
    """An optional package is needed for this."""

    @classmethod
    def of(cls, what: str, extra: str) -> Self:
        """The error for something that needs an extra of ours."""
        return cls(f"{what} needs an optional package; run: pip install 'sennit[{extra}]'")


class ServiceError(SennitError):
    """A model or a tool could not answer."""


ModelErrorKind: TypeAlias = Literal[
    "auth",  # the key is missing, wrong or may not do this: operator
    "bad_request",  # the provider does not accept the request: caller
    "not_found",  # there is no such model or provider: caller
    "context",  # the conversation is longer than the model's window: summarise
    "rate_limit",  # too many requests, or the quota is used up: wait
    "overloaded",  # the provider has trouble (5xx): wait
    "timeout",  # it took too long: wait
    "network",  # the connection failed or broke off: wait
    "malformed",  # the provider sent what cannot be read
    "busy",  # our own limits: the breaker is open or the queue is full
    "failed",  # anything else
]

_RETRYABLE = ("rate_limit", "overloaded", "timeout", "network")


class ModelError(ServiceError):
    """A model or its provider failed; `kind` says how, and whether asking again may help."""

    def __init__(
        self,
        message: str,
        *,
        kind: ModelErrorKind = "failed",
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: ModelErrorKind = kind
        self.status = status
        """The HTTP status, if it came to that."""
        self.retry_after = retry_after
        """The seconds the provider asks to wait."""

    @property
    def retryable(self) -> bool:
        """True if the same request may succeed later."""
        return self.kind in _RETRYABLE


class OutputError(ServiceError):
    """The answer of a model, or the result of an operation, does not fit the schema."""

    def __init__(self, message: str, *, problems: Sequence[str] = (), said: str = "") -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        """What does not fit, place by place."""
        self.said = said
        """What was answered last."""


class PolicyError(ServiceError):
    """A policy refused what a model was to be asked or has answered, or failed itself."""

    def __init__(self, message: str, *, kind: Literal["refused", "policy"] = "policy") -> None:
        super().__init__(message)
        self.kind: Literal["refused", "policy"] = kind
        """"refused" if it did so on purpose, "policy" if it failed."""


class RunError(ServiceError):
    """A run of turns did not end well; `result` is the Return that says how."""

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class ToolError(ServiceError):
    """A tool failed, took too long, or was given arguments it does not take."""


class StoreError(SennitError):
    """The store could not do it (a full disk, a lock, a foreign file); nothing was done."""


class ArchiveError(StoreError):
    """The archive is damaged, not ours, or hostile; nothing was imported."""


class ConflictError(StoreError):
    """Someone else changed it first, or holds it; nothing was done."""

    def __init__(self, message: str, *, holder: str = "", call: UUID | None = None) -> None:
        super().__init__(message)
        self.holder = holder
        """Who holds it, if someone does."""
        self.call = call
        """The message that asks for a tool call which someone else has started, if that is it."""
