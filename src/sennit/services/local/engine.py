"""In-process llama.cpp engine: one per weights file, shared by all models that use it.

The only module that uses xllamacpp, which has these constraints:

- It replies through a callback on the calling thread, swallows exceptions of the callback and stops
  when the callback returns true. So each engine has its own thread, which runs jobs in order of
  arrival; a job reports through `EngineJob.on_event` and is stopped by `stop()`.
- It cannot stop inside a batch of prompt tokens, so batches are small on a CPU, and progress is
  reported after each.
- It always listens on a loopback port, which is protected by a random key and closed to web pages;
  we use it to tokenise.
- A forked child has the engine's memory but none of its threads: using the engine hangs, freeing
  it aborts, and even exiting hangs while a destructor joins a missing thread. So a child drops the
  inherited engines, loads its own, never frees them, and exits without running C++ destructors.
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
    short_repr,
)
from sennit.services.local.http_client import EngineClient

DEFAULT_CONTEXT_TOKENS = 4096
"""The default context size, prompt and reply together."""
_MAX_DEFAULT_THREADS = 8  # small models gain nothing from more
_CPU_BATCH_TOKENS = 8  # between two chances to stop; under 0.1 s of SmolLM2-135M on a slow core
_GPU_BATCH_TOKENS = 512
_EXIT_TIMEOUT_SECONDS = 5  # for the destructors of a forked child, where they cannot be skipped


@dataclass(frozen=True, slots=True)
class JobEnded:
    """The last event of a job, with the error if it failed."""

    error: SennitError | None = None


JobEvent: TypeAlias = "Mapping[str, Any] | JobEnded"


@dataclass(slots=True)
class EngineJob:
    """A request queued or running in an engine."""

    body: Mapping[str, Any]
    on_event: Callable[[JobEvent], object]
    """Called with each chunk and the end, on the engine's thread; not after `stop`."""
    stopped: bool = field(default=False, init=False)
    """True after `stop`."""
    _error: SennitError | None = field(default=None, init=False)

    def stop(self) -> None:
        """Stop the job; from any thread, at any time."""
        self.stopped = True

    def on_chunk(self, chunk: Any) -> bool:
        """Handle a chunk; return True to stop. Exceptions would be swallowed by xllamacpp."""
        if self.stopped:
            return True
        error = chunk.get("error")
        if error is not None:
            self._error = error_of(error)
            return True
        self._emit(chunk)
        return self.stopped

    def end(self, error: SennitError | None) -> None:
        """Emit the end of the job."""
        if not self.stopped:
            self._emit(JobEnded(error or self._error))

    def _emit(self, event: JobEvent) -> None:
        try:
            self.on_event(event)
        except RuntimeError:  # the caller's event loop is closed
            self.stopped = True


@dataclass(frozen=True, slots=True)
class _LoadedModel:
    """A model in memory."""

    server: Any
    """The server object of xllamacpp."""
    client: EngineClient


class Engine:
    """One loaded model and the thread that runs its jobs."""

    def __init__(self, file: Path, threads: int | None, context: int | None) -> None:
        self.file = file
        self.threads = threads or default_threads()
        self.context = context or DEFAULT_CONTEXT_TOKENS
        self._jobs: SimpleQueue[EngineJob | None] = SimpleQueue()
        self._current: EngineJob | None = None
        self._key = secrets.token_urlsafe(32)
        self._load_lock = threading.Lock()
        self._model: _LoadedModel | None = None
        self._closed = False
        self._thread = threading.Thread(
            target=self._run_jobs, name=f"sennit {file.name}", daemon=True
        )
        self._thread.start()

    def submit(self, job: EngineJob) -> None:
        """Queue `job`; raises ModelError if the engine is closed."""
        if self._closed:
            raise ModelError(f"The engine of {self.file.name!r} is closed: the program is ending.")
        self._jobs.put(job)

    def count_tokens(self, text: str) -> int:
        """Return the number of tokens of `text`, without a chat template; raises ModelError."""
        return self._loaded_model().client.count_tokens(text)

    def close(self) -> None:
        """Stop the running job and free the model, except in a forked process."""
        self._closed = True
        if current := self._current:
            current.stop()
        self._jobs.put(None)
        self._thread.join()
        model, self._model = self._model, None
        if model is not None and not _process.forked:
            _unpin(model.server)

    def _run_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            if self._closed:
                job.stop()
            self._current = job
            if not job.stopped:
                job.end(self._run_job(job))
            self._current = job = None

    def _run_job(self, job: EngineJob) -> SennitError | None:
        try:
            loaded = self._loaded_model()
            body = _escape_messages(job.body, loaded.client)
            response = loaded.server.handle_chat_completions(body, job.on_chunk)
        except SennitError as error:
            return error
        except ValueError as error:  # an invalid request
            return _with_cause(
                ModelError(f"The local model refused: {error}", kind="bad_request"), error
            )
        except Exception as error:
            return _with_cause(ModelError(f"The local model failed: {error}"), error)
        if isinstance(response, Mapping) and "error" in response:
            return error_of(cast("Mapping[str, Any]", response)["error"])
        return None

    def _loaded_model(self) -> _LoadedModel:
        """Return the model, loading it on first use."""
        with self._load_lock:
            if self._model is None:
                self._model = self._load()
            return self._model

    def _load(self) -> _LoadedModel:
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
        return _LoadedModel(server, EngineClient(server.listening_address, self._key))

    def _options(self, xllamacpp: Any) -> Any:
        options = xllamacpp.CommonParams()
        options.model.path = str(self.file)
        options.n_ctx, options.n_parallel = self.context, 1
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = self.threads
        options.n_batch = options.n_ubatch = _batch_tokens(xllamacpp)
        options.cache_ram_mib = 0  # the default is 8 GiB
        options.prefill_assistant = False  # a reply follows the last message, whatever its role
        options.warmup = False
        options.verbosity = -1
        self._restrict_port(options)
        return options

    def _restrict_port(self, options: Any) -> None:
        options.hostnames = ["127.0.0.1"]
        options.api_keys = [self._key]
        options.cors_origins = "http://127.0.0.1"
        options.cors_credentials = False
        options.ui = options.endpoint_slots = options.endpoint_props = False
        options.endpoint_metrics = False
        options.n_threads_http = 2


def engine_of(file: Path, *, threads: int | None = None, context: int | None = None) -> Engine:
    """Return this process's engine for `file`, creating it if needed; it loads on first use.

    Raises MissingExtraError without xllamacpp, ValidationError if the engine already exists with
    other options.
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
    """Return the context size of the engine of `file`; None without an engine."""
    engine = _process.engines.get(file.resolve())
    return engine.context if engine else None


def default_threads() -> int:
    """Return the default thread count, leaving one core for the rest of the program."""
    usable = getattr(os, "sched_getaffinity", None)
    cores = len(usable(0)) if usable else os.cpu_count() or 1
    return max(1, min(cores - 1, _MAX_DEFAULT_THREADS))


def error_of(payload: Any) -> ModelError:
    """Convert an error payload of llama.cpp to a ModelError."""
    details = (
        cast("Mapping[str, Any]", payload) if isinstance(payload, Mapping) else {"message": payload}
    )
    kinds: dict[str, ModelErrorKind] = {
        "exceed_context_size_error": "context",
        "invalid_request_error": "bad_request",
        "not_supported_error": "bad_request",
        "unavailable_error": "overloaded",
    }
    kind = kinds.get(str(details.get("type")), "failed")
    message, hint = str(details.get("message")), ""
    if "grammar" in message:  # llama.cpp compiles a schema to a grammar
        kind = "bad_request"
        hint = ". The schema could not be enforced: it may be recursive or too large."
    code = details.get("code")
    status = code if isinstance(code, int) else None
    return ModelError(f"The local model failed: {message}{hint}", kind=kind, status=status)


def _escape_messages(body: Mapping[str, Any], client: EngineClient) -> dict[str, Any]:
    """Return `body` with control tokens in its messages escaped, so that no text forges a turn."""
    messages: Sequence[Mapping[str, str]] = body["messages"]
    contents = client.escape_control_tokens([message["content"] for message in messages])
    pairs = zip(messages, contents, strict=True)
    return {**body, "messages": [{**message, "content": text} for message, text in pairs]}


def _check_same(name: str, wanted: int | None, actual: int, file: Path) -> None:
    if wanted is not None and wanted != actual:
        raise ValidationError(
            f"{file.name!r} is already loaded in this process with {name}={actual} and shared; "
            f"pass {name}={short_repr(wanted)} when the file is first used."
        )


def _with_cause(error: ModelError, cause: Exception) -> ModelError:
    error.__cause__ = cause
    return error


def _xllamacpp() -> Any:
    try:
        module: Any = import_module("xllamacpp")
    except ImportError as error:
        raise MissingExtraError.of("The local model", "local") from error
    _process.native = True
    return module


def _batch_tokens(xllamacpp: Any) -> int:
    kinds = [str(device["type"]) for device in xllamacpp.get_device_info()]
    return _GPU_BATCH_TOKENS if any("GPU" in kind for kind in kinds) else _CPU_BATCH_TOKENS


def _pin(server: object) -> None:
    """Add a reference, so that `server` is never freed implicitly, as in a forked child."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))


def _unpin(server: object) -> None:
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(server))


class _Process:
    """The engines of this process; a forked child starts with none."""

    def __init__(self, *, forked: bool = False, native: bool = False) -> None:
        self.lock = threading.Lock()
        self.engines: dict[Path, Engine] = {}
        self.forked = forked
        """Whether the library was already loaded in the parent when it forked."""
        self.native = native
        """Whether the library is loaded."""

    def close(self) -> None:
        for engine in list(self.engines.values()):
            engine.close()


_process = _Process()


def _reset_after_fork() -> None:
    """Drop the parent's engines and lock in a forked child."""
    global _process
    _process = _Process(forked=_process.native, native=_process.native)
    if _process.forked:
        _exit_without_destructors()


def _exit_without_destructors() -> None:
    """Make `exit` skip C++ destructors after Python's cleanup, keeping the exit status.

    One of the destructors joins a thread that the fork did not copy. Only glibc's on_exit passes
    the status; elsewhere the destructors run, and SIGALRM ends the process if they hang.
    """
    libc: Any = ctypes.CDLL(None)
    on_exit = getattr(libc, "on_exit", None)
    if on_exit is not None:
        on_exit(libc._exit, None)
    else:
        libc.__cxa_atexit(libc.alarm, ctypes.c_void_p(_EXIT_TIMEOUT_SECONDS), None)


def _close_all() -> None:
    _process.close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
