"""Exceptions of Sennit.

    SennitError
    ├── ValidationError (ValueError)      a value is not acceptable: caller, give another
    │   ├── InvalidTypeError (TypeError)  it has the wrong type, or an unknown field was named
    │   ├── NothingToAskError             no message for a model to answer: add one first
    │   └── CodecError                    it cannot be encoded, or the bytes cannot be read
    ├── NotFoundError (KeyError)          nothing has that id or name
    ├── OutOfRangeError (IndexError)      an index is out of range
    ├── ExistsError (ValueError)          that id or name is already in use
    ├── AccessError (PermissionError)     the branch was not granted it
    ├── UsageError (RuntimeError)         called where it cannot work, such as in an event loop
    ├── MissingExtraError (ImportError)   an optional package is not installed: install the extra
    ├── ServiceError                      a model or a tool failed
    │   ├── ModelError                    a model or its provider failed: see its `kind`
    │   ├── OutputError                   a model's output does not match the schema
    │   ├── PolicyError                   a policy rejected a request or a reply, or failed
    │   ├── RunError                      a run failed
    │   └── ToolError                     a tool failed, or got invalid arguments
    └── StoreError                        the store failed: check the disk, the file, the lock
        ├── ArchiveError                  an archive is damaged, foreign or malicious
        └── ConflictError                 changed concurrently: refresh and try again

Many also derive from the built-in exception in parentheses, so `except KeyError` and
`except PermissionError` work. A message names the value, what was expected and the way out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import wraps
from typing import Any, Literal, Self, TypeAlias, TypeVar
from uuid import UUID

_T = TypeVar("_T")
_MAX_REPR = 100  # characters


def short_repr(value: object) -> str:
    """Return `repr(value)`, truncated, for an error message; never raises."""
    try:
        # Sliced first: the repr of a long text is longer still, and mostly discarded.
        text = repr(value[: _MAX_REPR + 1] if type(value) in (str, bytes) else value)  # pyright: ignore
    except Exception as error:  # a repr may raise anything, and must not hide the error to report
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}… ({type(value).__name__})"


_MAX_TYPED = 200  # characters of a name that a person may have typed
_MAX_COMPARED = 5_000  # names: comparing more would delay the error
_MAX_LISTED = 20


def nearest(name: object, candidates: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return the candidates nearest to a wrong name, best first; case does not matter."""
    from difflib import get_close_matches  # late: slow to import, and only errors need it
    from itertools import islice

    if not isinstance(name, str) or len(name) > _MAX_TYPED:
        return []
    by_folded_name = {known.casefold(): known for known in islice(candidates, _MAX_COMPARED)}
    matches = get_close_matches(name.casefold(), by_folded_name, n=limit)
    return [by_folded_name[match] for match in matches]


def did_you_mean(name: object, candidates: Iterable[str], *, limit: int = 3) -> str:
    """Return " Did you mean 'main'?" with the names nearest to a wrong one, or an empty string."""
    names = map(repr, nearest(name, candidates, limit=limit))
    choices = " or ".join(names)
    return f" Did you mean {choices}?" if choices else ""


def listed(names: Iterable[object], *, empty: str = "none yet") -> str:
    """Return names for a sentence, such as "'a', 'b'"; `empty` if there are none.

    A set is sorted. Of many names, the first 20 are given and the others counted.
    """
    ordered = sorted(names, key=str) if isinstance(names, set | frozenset) else list(names)
    shown = [str.__repr__(name) if isinstance(name, str) else str(name) for name in ordered]
    if len(shown) > _MAX_LISTED:
        return f"{', '.join(shown[:_MAX_LISTED])} and {len(shown) - _MAX_LISTED} more"
    return ", ".join(shown) or empty


class SennitError(Exception):
    """Base class of all errors that Sennit raises deliberately."""


class ValidationError(SennitError, ValueError):
    """A value is not acceptable; nothing was changed."""


class NothingToAskError(ValidationError):
    """There is no message for a model to answer; the model was not called."""


class InvalidTypeError(ValidationError, TypeError):
    """A value has the wrong type, or an unknown field was named."""


class CodecError(ValidationError):
    """A value cannot be encoded, or bytes cannot be decoded."""


class NotFoundError(SennitError, KeyError):
    """Nothing has that id or name."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which would quote the sentence.
        return Exception.__str__(self)


class OutOfRangeError(SennitError, IndexError):
    """An index is out of range."""


class ExistsError(SennitError, ValueError):
    """That id or name is already in use."""


class AccessError(SennitError, PermissionError):
    """The branch was not granted access."""


class UsageError(SennitError, RuntimeError):
    """A call that cannot work here; the message names the alternative."""


class MissingExtraError(SennitError, ImportError):
    """An optional package is not installed."""

    @classmethod
    def of(cls, what: str, extra: str) -> Self:
        """Return the error for a feature that needs an extra."""
        return cls(f"{what} needs an optional package; run: pip install 'sennit[{extra}]'")


class ServiceError(SennitError):
    """A model or a tool failed."""


ModelErrorKind: TypeAlias = Literal[
    "auth",  # the key is missing, wrong or may not do this: operator
    "bad_request",  # the provider does not accept the request: caller
    "not_found",  # there is no such model or provider: caller
    "context",  # the conversation is longer than the model's window: summarise
    "rate_limit",  # too many requests, or the quota is used up: wait
    "overloaded",  # the provider failed (5xx): wait
    "timeout",  # it took too long: wait
    "network",  # the connection failed or was lost: wait
    "malformed",  # the provider sent an invalid response
    "busy",  # our own limits: the breaker is open or the queue is full
    "failed",  # anything else
]

_RETRYABLE = ("rate_limit", "overloaded", "timeout", "network")


class ModelError(ServiceError):
    """A model or its provider failed; `kind` says how, and `retryable` whether to try again."""

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
        """The HTTP status, if there was a response."""
        self.retry_after = retry_after
        """The seconds that the provider asks to wait."""

    @property
    def retryable(self) -> bool:
        """True if the same request may succeed later."""
        return self.kind in _RETRYABLE


class OutputError(ServiceError):
    """The reply of a model, or the result of an operation, does not match the schema."""

    def __init__(self, message: str, *, problems: Sequence[str] = (), said: str = "") -> None:
        super().__init__(message)
        self.problems: tuple[str, ...] = tuple(problems)
        """The validation errors, each with its path."""
        self.said = said
        """The text of the last reply."""


class PolicyError(ServiceError):
    """A policy rejected a request or a reply, or failed itself."""

    def __init__(self, message: str, *, kind: Literal["refused", "policy"] = "policy") -> None:
        super().__init__(message)
        self.kind: Literal["refused", "policy"] = kind
        """"refused" for a rejection, "policy" if the policy failed."""


class RunError(ServiceError):
    """A run failed; `result` is its Return."""

    def __init__(self, message: str, result: object = None) -> None:
        super().__init__(message)
        self.result = result


class ToolError(ServiceError):
    """A tool failed, timed out, or got invalid arguments."""


class StoreError(SennitError):
    """The store failed (a full disk, a lock, a foreign file); nothing was changed."""


class ArchiveError(StoreError):
    """The archive is damaged, foreign or malicious; nothing was imported."""


class ConflictError(StoreError):
    """It was changed concurrently, or is leased to another holder; nothing was changed."""

    def __init__(self, message: str, *, holder: str = "", call: UUID | None = None) -> None:
        super().__init__(message)
        self.holder = holder
        """The holder of the lease, if there is one."""
        self.call = call
        """The message of the tool call that another holder has started, if that is it."""


def suggesting_names(options: type[_T]) -> type[_T]:
    """Have a dataclass raise InvalidTypeError, with the nearest names, for an unknown field."""
    init: Any = options.__init__
    names = [field.name for field in fields(options)]  # pyright: ignore[reportArgumentType]

    @wraps(init)
    def checked_init(self: object, *args: object, **values: object) -> None:
        for name in sorted(values.keys() - set(names)):
            raise InvalidTypeError(
                f"{options.__name__} has no field {name!r}.{did_you_mean(name, names)} "
                f"It has {', '.join(names)}."
            )
        init(self, *args, **values)

    options.__init__ = checked_init
    return options
