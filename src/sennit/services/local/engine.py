"""llama.cpp in this process: one engine per weights file, shared by all models that use it.

The only module that knows xllamacpp, which has habits to live with:

- It answers through a callback on the calling thread, swallows what that callback raises and ends
  when it returns true. So each engine has a thread of its own, which answers one request after
  another in the order of arrival; whoever waits is told through `EngineJob.tell`, and stops by
  `stop()`.
- It cannot stop inside a batch of the prompt, so batches are small where a processor is all there
  is, and progress is asked for after each.
- It always listens on a loopback port. That port has a random key and lets no web page in; we use
  it to look at tokens.
- A process forked from one with an engine has the engine's memory but none of its threads: using
  it hangs, freeing it aborts, even leaving the process hangs while it waits for a thread that is
  not there. So a child forgets the engines it was born with, loads its own and never frees them,
  and leaves without running C++ destructors.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeAlias, cast

from sennit.errors import (
    MissingExtraError,
    ModelError,
    ModelErrorKind,
    SennitError,
    ValidationError,
    shown,
)
from sennit.services.local.http_client import EngineClient

CONTEXT = 4096
"""Tokens of a conversation, prompt and answer together, unless told otherwise."""
_MOST_THREADS = 8  # by default; small models gain nothing from more
_CPU_BATCH = 8  # tokens between two chances to stop; under 0.1 s of SmolLM2-135M on a slow core
_GPU_BATCH = 512
_LEAVING_SECONDS = 5  # for the destructors of a forked child, where they cannot be left out


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The last a job tells: all was said, or why not."""

    error: SennitError | None = None


Letter: TypeAlias = "Mapping[str, Any] | JobEnded"


@dataclass(slots=True)
class EngineJob:
    """A request on its way through an engine."""

    body: Mapping[str, Any]
    tell: Callable[[Letter], object]
    """Given each chunk and the end, on the engine's thread; nothing after `stop`."""
    _stopped: bool = field(default=False, init=False)
    _error: SennitError | None = field(default=None, init=False)

    @property
    def stopped(self) -> bool:
        """True if nobody waits for more."""
        return self._stopped

    def stop(self) -> None:
        """Ask for no more; from any thread, at any time."""
        self._stopped = True

    def take(self, chunk: Any) -> bool:
        """The engine's callback: true makes it stop. Must not raise, nobody would hear it."""
        if self._stopped:
            return True
        error = chunk.get("error")
        if error is not None:
            self._error = error_of(error)
            return True
        self._tell(chunk)
        return self._stopped

    def end(self, error: SennitError | None) -> None:
        """Tell that it is over."""
        if not self._stopped:
            self._tell(JobEnded(error or self._error))

    def _tell(self, letter: Letter) -> None:
        try:
            self.tell(letter)
        except RuntimeError:  # the event loop that waited is closed
            self._stopped = True


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A model in memory."""

    server: Any
    """The server object of xllamacpp."""
    port: EngineClient


class Engine:
    """One loaded model and the thread that answers with it."""

    def __init__(self, file: Path, threads: int | None, context: int | None) -> None:
        self.file = file
        self.threads = threads or default_threads()
        self.context = context or CONTEXT
        self._jobs: SimpleQueue[EngineJob | None] = SimpleQueue()
        self._current: EngineJob | None = None
        self._key = secrets.token_urlsafe(32)
        self._loading = threading.Lock()
        self._model: _Loaded | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._work, name=f"sennit {file.name}", daemon=True)
        self._thread.start()

    def submit(self, job: EngineJob) -> None:
        """Answer `job` once all that came before it are answered or stopped."""
        if self._closed:
            raise ModelError(f"The engine of {self.file.name!r} is closed: the program is ending.")
        self._jobs.put(job)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of `text`, without a chat template; raises ModelError."""
        return self._loaded().port.count(text)

    def close(self) -> None:
        """Stop what is being said and free the model, unless it may not be freed."""
        self._closed = True
        if current := self._current:
            current.stop()
        self._jobs.put(None)
        self._thread.join()
        model, self._model = self._model, None
        if model is not None and not _process.forked:
            _unpin(model.server)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._closed:
                job.stop()
            self._current = job
            if not job.stopped:
                job.end(self._answer(job))
            self._current = job = None

    def _answer(self, job: EngineJob) -> SennitError | None:
        try:
            loaded = self._loaded()
            body = _safe(job.body, loaded.port)
            answer = loaded.server.handle_chat_completions(body, job.take)
        except SennitError as error:
            return error
        except ValueError as error:  # what it says to a request that makes no sense
            return _caused(
                ModelError(f"The local model refused: {error}", kind="bad_request"), error
            )
        except Exception as error:
            return _caused(ModelError(f"The local model failed: {error}"), error)
        if isinstance(answer, Mapping) and "error" in answer:
            return error_of(cast("Mapping[str, Any]", answer)["error"])
        return None

    def _loaded(self) -> _Loaded:
        """The model, loaded by whoever needs it first."""
        with self._loading:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _load(self) -> _Loaded:
        xllamacpp = _xllamacpp()
        try:
            server = xllamacpp.Server(self._options(xllamacpp))
        except (RuntimeError, ValueError, MemoryError) as error:
            raise ModelError(
                f"{str(self.file)!r} could not be loaded ({error}). Check that it is a complete "
                f"GGUF file of a chat model, and that there is enough memory for "
                f"context={self.context}.",
                kind="bad_request",
            ) from error
        _pin(server)
        return _Loaded(server, EngineClient(server.listening_address, self._key))

    def _options(self, xllamacpp: Any) -> Any:
        options = xllamacpp.CommonParams()
        options.model.path = str(self.file)
        options.n_ctx, options.n_parallel = self.context, 1
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = self.threads
        options.n_batch = options.n_ubatch = _batch(xllamacpp)
        options.cache_ram_mib = 0  # the default is 8 GiB
        options.prefill_assistant = False  # an answer follows the last message, whoever said it
        options.warmup = False
        options.verbosity = -1
        self._shut_the_port(options)
        return options

    def _shut_the_port(self, options: Any) -> None:
        options.hostnames = ["127.0.0.1"]
        options.api_keys = [self._key]
        options.cors_origins = "http://127.0.0.1"
        options.cors_credentials = False
        options.ui = options.endpoint_slots = options.endpoint_props = False
        options.endpoint_metrics = False
        options.n_threads_http = 2


def engine_of(file: Path, *, threads: int | None = None, context: int | None = None) -> Engine:
    """The engine of `file` in this process, made if need be; it loads when it is first asked.

    Raises MissingExtraError without xllamacpp, ValidationError if the engine is there already and
    has other options than those given.
    """
    _xllamacpp()
    file = file.resolve()
    with _process.lock:
        engine = _process.engines.get(file)
        if engine is None:
            engine = _process.engines[file] = Engine(file, threads, context)
    _check_same("threads", threads, engine.threads, file)
    _check_same("context", context, engine.context, file)
    return engine


def context_of(file: Path) -> int | None:
    """The context of the engine of `file`, if there is one."""
    engine = _process.engines.get(file.resolve())
    return engine.context if engine else None


def default_threads() -> int:
    """One core is left for the rest of the program: with all of them taken, all of them wait."""
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return max(1, min(cores - 1, _MOST_THREADS))


def error_of(said: Any) -> ModelError:
    """The error that llama.cpp put into words."""
    about = cast("Mapping[str, Any]", said) if isinstance(said, Mapping) else {"message": said}
    kinds: dict[str, ModelErrorKind] = {
        "exceed_context_size_error": "context",
        "invalid_request_error": "bad_request",
        "not_supported_error": "bad_request",
        "unavailable_error": "overloaded",
    }
    kind = kinds.get(str(about.get("type")), "failed")
    message, way = str(about.get("message")), ""
    if "grammar" in message:  # a schema becomes one
        kind = "bad_request"
        way = ". It cannot be held to that schema: does it recur without end, or ask for too much?"
    code = about.get("code")
    status = code if isinstance(code, int) else None
    return ModelError(f"The local model failed: {message}{way}", kind=kind, status=status)


def _safe(body: Mapping[str, Any], port: EngineClient) -> dict[str, Any]:
    """`body`, with nothing in its messages that could pose as another turn."""
    messages: Sequence[Mapping[str, str]] = body["messages"]
    contents = port.harmless([message["content"] for message in messages])
    pairs = zip(messages, contents, strict=True)
    return {**body, "messages": [{**message, "content": text} for message, text in pairs]}


def _check_same(name: str, wanted: int | None, is_: int, file: Path) -> None:
    if wanted is not None and wanted != is_:
        raise ValidationError(
            f"{file.name!r} is already loaded in this process with {name}={is_} and shared; pass "
            f"{name}={shown(wanted)} when the file is first used."
        )


def _caused(error: ModelError, cause: Exception) -> ModelError:
    error.__cause__ = cause
    return error


def _xllamacpp() -> Any:
    try:
        module: Any = import_module("xllamacpp")
    except ImportError as error:
        raise MissingExtraError.of("The local model", "local") from error
    _process.native = True
    return module


def _batch(xllamacpp: Any) -> int:
    kinds = [str(device["type"]) for device in xllamacpp.get_device_info()]
    return _GPU_BATCH if any("GPU" in kind for kind in kinds) else _CPU_BATCH


def _pin(server: object) -> None:
    """Keep `server` from being freed by whoever drops the last reference, a forked child say."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


def _unpin(server: object) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(server))


class _Process:
    """The models loaded in this process; a forked child starts empty."""

    def __init__(self, *, forked: bool = False, native: bool = False) -> None:
        self.lock = threading.Lock()
        self.engines: dict[Path, Engine] = {}
        self.forked = forked
        """Whether an ancestor had loaded the library when it forked."""
        self.native = native
        """Whether the library is loaded."""

    def close(self) -> None:
        for engine in list(self.engines.values()):
            engine.close()


_process = _Process()


def _start_anew() -> None:
    """In a forked child: the engines and the lock are the parent's."""
    global _process
    _process = _Process(forked=_process.native, native=_process.native)
    if _process.forked:
        _leave_without_destructors()


def _leave_without_destructors() -> None:
    """Make `exit` end here and now, with its status, once Python has cleaned up.

    One of the destructors that come next waits for a thread that the fork did not copy. Only glibc
    tells the status; elsewhere the destructors may run, and a signal ends what hangs in them.
    """
    libc: Any = ctypes.CDLL(None)
    on_exit = getattr(libc, "on_exit", None)
    if on_exit is not None:
        on_exit(libc._exit, None)
    else:
        libc.__cxa_atexit(libc.alarm, ctypes.c_void_p(_LEAVING_SECONDS), None)


def _close_all() -> None:
    _process.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_anew)
