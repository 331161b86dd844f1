"""Provider models: found by name, called over HTTP.

`connect("openai:gpt-5")` gives a Model. Invariants:

- A key comes from the caller or the environment. It is held where no repr, pickle or log reaches
  it, and cut out of whatever a provider says, since error texts like to quote it.
- Whatever goes wrong becomes a ModelError with the kind that says who has to act. An exception of
  the library below is its `__cause__`, unless it quotes a key.
- Nothing is asked twice here: when to try again is the caller's decision.
- One HTTP client per event loop, reused from call to call. A client is tied to the loop it first
  ran on, so each loop gets its own; it is closed when that loop ends, or by `aclose`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from sennit.closing import AsyncClosing
from sennit.errors import (
    MissingExtraError,
    ModelError,
    ModelErrorKind,
    SennitError,
    ValidationError,
    shown,
)
from sennit.messages.image_url import http_host
from sennit.services.models.params import checked_params
from sennit.services.models.reply import Delta, Reply
from sennit.services.models.request import ModelRequest

if TYPE_CHECKING:
    from sennit.services.models.providers.client import (
        ModelEndpoint,
        ProviderClient,
        ProviderRequest,
    )

_T = TypeVar("_T")

PROVIDERS: Mapping[str, str] = {
    "openai": "openai-chat",
    "openai-responses": "openai-responses",
    "anthropic": "anthropic",
    "google": "google",
    "ollama": "ollama",
    "alibaba": "alibaba",
    "cerebras": "cerebras",
    "deepseek": "deepseek",
    "fireworks": "fireworks",
    "heroku": "heroku",
    "moonshotai": "moonshotai",
    "nebius": "nebius",
    "openrouter": "openrouter",
    "ovhcloud": "ovhcloud",
    "sambanova": "sambanova",
    "together": "together",
    "vercel": "vercel",
    "vllm": "vllm",
    "zai": "zai",
}
"""The providers by name, and what the layer below calls them."""

_AUTHORITY_END = re.compile(r"[/?#]")
_OLLAMA = "http://localhost:11434/v1"
_VARIABLE = re.compile(r"`([A-Z][A-Z0-9_]+)`")
_SECRET_VARIABLE = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD)S?$")
_LOOKS_SECRET = re.compile(r"\b(?:sk|pk|gsk|xai|AIza)[-_][\w*.-]{6,}|(?<=Bearer )\S+")
_SHORTEST_SECRET = 6
_LONGEST_MESSAGE = 600
_WAYS_OUT: Mapping[ModelErrorKind, str] = {
    "auth": " Check the key and what it may be used for.",
    "not_found": " Check the model's name and the base_url.",
    "context": " Shorten the conversation.",
}


def connect(
    spec: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    window: int | None = None,
    fetch_images: bool = False,
) -> ProviderModel:
    """The model `spec` names, as "provider:model"; nothing is sent before it is asked.

    Args:
        spec: Such as "openai:gpt-5", "anthropic:claude-opus-5", "google:gemini-2.5-flash" or
            "ollama:qwen3". With `base_url`, "openai:name" is any server that speaks OpenAI's form.
        base_url: Another address than the provider's own.
        api_key: The key; without one the provider's environment variable is read.
        window: The tokens the model takes in, if they are not known from its name.
        fetch_images: Whether addresses of images may be fetched from here for a provider that does
            not fetch them itself.

    Raises:
        ModelError: kind "not_found" for an unknown provider, "auth" without a key.
        ValidationError: `spec` or `base_url` does not make sense.
        MissingExtraError: the packages that speak to providers are not installed.
    """
    provider, name = _split(spec)
    try:
        from sennit.services.models.providers.client import ModelEndpoint
    except ImportError as error:
        raise MissingExtraError.of(f"Model {spec!r}", "models") from error
    if provider == "ollama" and base_url is None and not os.environ.get("OLLAMA_BASE_URL"):
        base_url = _OLLAMA
    address = ModelEndpoint(
        kind=PROVIDERS[provider],
        model=name,
        base_url=_checked_url(base_url),
        fetch_images=fetch_images,
    )
    return ProviderModel(spec, address, _Secret(api_key), window)


def _split(spec: str) -> tuple[str, str]:
    if not isinstance(spec, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(f"A model is named by text like 'openai:gpt-5', got {shown(spec)}.")
    provider, colon, name = spec.partition(":")
    if not colon or not name.strip():
        raise ValidationError(f"A model is named 'provider:model', got {shown(spec)}.")
    if provider not in PROVIDERS:
        raise ModelError(
            f"There is no provider {shown(provider)}; there are {', '.join(PROVIDERS)}. For an "
            f"OpenAI-compatible server, use 'openai:{name}' with base_url.",
            kind="not_found",
        )
    return provider, name


def _checked_url(url: str | None) -> str | None:
    if url is None:
        return None
    if "@" in _AUTHORITY_END.split(url.partition("//")[2], 1)[0]:  # not shown: it holds a secret
        raise ValidationError("base_url must not contain credentials; pass them as api_key.")
    if http_host(url) is None:
        raise ValidationError(f"base_url must be an http(s) URL, got {shown(url)}.")
    return url


class _Secret:
    """A key that shows itself to nobody but who asks for it by name."""

    __slots__ = ("_value",)

    def __init__(self, value: str | None) -> None:
        self._value = value

    def reveal(self) -> str | None:
        return self._value

    def __repr__(self) -> str:
        return "***"

    def __reduce__(self) -> NoReturn:
        raise TypeError("An API key cannot be pickled.")


class _Line:
    """A wire on one event loop, closed when the loop ends or nobody holds it any more."""

    def __init__(self, wire: ProviderClient) -> None:
        self.wire = wire
        # asyncio closes the generators that are still open when a loop ends: the one moment at
        # which the connections can still be closed.
        self._life = _closing(wire)

    @property
    def dead(self) -> bool:
        return self.wire.client.is_closed

    async def begin(self) -> None:
        """To be called on the loop; does not let go of it."""
        await anext(self._life)

    async def aclose(self) -> None:
        await self._life.aclose()


async def _closing(wire: ProviderClient) -> AsyncGenerator[None]:
    try:
        yield
    finally:
        await wire.client.aclose()


class ProviderModel(AsyncClosing):
    """A Model at a provider; made by `connect`.

    May be used from any number of tasks, threads and event loops (asyncio).
    """

    streams = True

    def __init__(self, name: str, address: ModelEndpoint, key: _Secret, window: int | None) -> None:
        self._name = name
        self._address = address
        self._key = key
        self._lock = Lock()
        self._lines: dict[asyncio.AbstractEventLoop, _Line] = {}
        # Opened at once, for the errors; the first loop that asks gets it.
        self._spare: ProviderClient | None = self._open()
        # The environment may change before the next loop needs the key.
        self._key = _Secret(key.reveal() or self._spare.key_in_use())
        self._window = window or self._spare.window
        self._shapes_output = self._spare.shapes_output

    def __repr__(self) -> str:
        return f"<ProviderModel {self._name!r}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} holds an API key and cannot be pickled; connect again instead.")

    @property
    def name(self) -> str:
        """As given to `connect`."""
        return self._name

    @property
    def window(self) -> int | None:
        """The context window in tokens; None if unknown."""
        return self._window

    @property
    def shapes_output(self) -> bool:
        """True if it can be held to a JSON schema."""
        return self._shapes_output

    async def ask(self, request: ModelRequest) -> Reply:
        """The whole reply; raises ModelError, or ValidationError for what it cannot do."""
        call = await self._call(request)
        return await call.step(call.wire.ask(call.asked))

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        """The reply as deltas; leaving the block early hangs up."""
        call = await self._call(request)
        opened = call.wire.stream(call.asked)
        told = await call.step(opened.__aenter__())
        try:
            async with aclosing(call.each(told)) as deltas:
                yield deltas
        finally:
            await call.guarded(opened.__aexit__(None, None, None))

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the model stays usable."""
        with self._lock:
            line = self._lines.pop(asyncio.get_running_loop(), None)
        if line is not None:
            await line.aclose()

    async def _call(self, request: ModelRequest) -> _Call:
        params = checked_params(request.params)
        wire = (await self._line()).wire
        try:
            asked = wire.asked(request, params)
        except ValidationError as error:
            raise type(error)(f"Model {self._name!r}: {error}") from None
        return _Call(self._name, wire, asked, params, self._key)

    async def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        with self._lock:
            for other in [other for other in self._lines if other.is_closed()]:
                del self._lines[other]
            line = self._lines.get(loop)
            if line is not None and not line.dead:
                return line
            spare, self._spare = self._spare, None
            line = self._lines[loop] = _Line(spare or self._open())
        await line.begin()
        return line

    def _open(self) -> ProviderClient:
        from sennit.services.models.providers.client import ProviderClient, failure

        try:
            return ProviderClient(self._address, self._key.reveal())
        except SennitError:
            raise
        except ImportError as error:
            raise MissingExtraError.of(f"Model {self._name!r}", "models") from error
        except Exception as error:
            secrets = _secrets(self._key, {})
            told = _not_set_up(self._name, failure(error).said, secrets)
            told.__cause__ = None if _quotes(error, secrets) else error
        raise told


def _not_set_up(name: str, said: str, secrets: Iterable[str]) -> ModelError:
    """For what a provider needs and has not got, as a rule its key."""
    variables = _VARIABLE.findall(said)
    way = " or ".join(variables)
    if any("KEY" in variable or "TOKEN" in variable for variable in variables):
        return ModelError(
            f"Model {name!r} needs an API key: set {way}, or pass api_key.", kind="auth"
        )
    if variables:
        return ModelError(f"Model {name!r} needs {way} to be set.", kind="bad_request")
    return ModelError(f"Model {name!r} cannot be set up: {_scrubbed(said, secrets)}")


class _Call:
    """One request under way: its deadline, and what must not be told of it."""

    def __init__(
        self,
        name: str,
        wire: ProviderClient,
        asked: ProviderRequest,
        params: Mapping[str, Any],
        key: _Secret,
    ) -> None:
        self.wire = wire
        self.asked = asked
        self._name = name
        self._key = key
        self._seconds: float | None = params.get("timeout")
        self._headers: Mapping[str, str] = params.get("extra_headers") or {}
        now = asyncio.get_running_loop().time()
        self._until = None if self._seconds is None else now + self._seconds

    async def each(self, deltas: AsyncIterator[Delta]) -> AsyncGenerator[Delta]:
        """The deltas, each under the deadline of the whole answer."""
        while (delta := await self.step(anext(deltas, None))) is not None:
            yield delta

    async def step(self, step: Awaitable[_T]) -> _T:
        """`guarded`, and done before the deadline."""
        return await self.guarded(self._in_time(step))

    async def _in_time(self, step: Awaitable[_T]) -> _T:
        async with asyncio.timeout_at(self._until):
            return await step

    async def guarded(self, step: Awaitable[_T]) -> _T:
        """Return the result of `step`; any exception becomes a ModelError."""
        try:
            return await step
        except TimeoutError as error:
            failure = self._late()
            failure.__cause__ = error
        except ModelError as error:
            failure = ModelError(f"Model {self._name!r}: {error}", kind=error.kind)
        except Exception as error:
            failure = self._failure(error)
        # Outside the except clauses: inside, Python would attach the exception with its secrets.
        raise failure

    def _late(self) -> ModelError:
        within = "in time" if self._seconds is None else f"within {self._seconds:g} s"
        return ModelError(f"Model {self._name!r} did not answer {within}.", kind="timeout")

    def _failure(self, error: Exception) -> ModelError:
        from sennit.services.models.providers.client import failure

        read, secrets = failure(error), _secrets(self._key, self._headers)
        status = "" if read.status is None else f" ({read.status})"
        said, way_out = _scrubbed(read.said, secrets), _WAYS_OUT.get(read.kind, "")
        stop = "." if way_out and not said.endswith((".", "!", "?")) else ""
        told = ModelError(
            f"Model {self._name!r} failed{status}: {said}{stop}{way_out}",
            kind=read.kind,
            status=read.status,
            retry_after=read.retry_after,
        )
        if not _quotes(error, secrets):
            told.__cause__ = error
        return told


def _secrets(key: _Secret, headers: Mapping[str, str]) -> list[str]:
    """Return the strings that no error may quote: keys, own headers, secrets of the environment."""
    hidden = (value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name))
    candidates = (key.reveal() or "", *headers.values(), *hidden)
    return [secret for secret in candidates if len(secret) >= _SHORTEST_SECRET]


def _scrubbed(text: str, secrets: Iterable[str]) -> str:
    """`text` on one line, without secrets and not too long."""
    for secret in secrets:
        text = text.replace(secret, "***")
    text = " ".join(_LOOKS_SECRET.sub("***", text).split())
    return text if len(text) <= _LONGEST_MESSAGE else f"{text[:_LONGEST_MESSAGE]}…"


def _quotes(error: BaseException | None, secrets: Sequence[str]) -> bool:
    """Return whether a traceback of `error` would show a secret."""
    while error is not None:
        said = str(error)
        if _LOOKS_SECRET.search(said) or any(secret in said for secret in secrets):
            return True
        error = error.__cause__ or error.__context__
    return False
