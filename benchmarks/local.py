"""The embedded model: how long until it speaks, and how fast it does beside the bare engine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Any

from benchmarks.harness import Result, Work, compare
from sennit.services.local.engine import default_threads
from sennit.services.local.model import LocalModel
from sennit.services.local.request import DEFAULTS
from sennit.services.local.weights import find
from sennit.services.models.request import ModelRequest

_MAX_FIRST_TOKEN_SECONDS = 1.5  # to the first token of a new process
_TOKENS = 128
_MESSAGES = [{"role": "user", "content": "Tell me about knots."}]
_COLD = """
import asyncio
from sennit.services.local.model import LocalModel
from sennit.services.models.request import ModelRequest

async def first() -> None:
    asked = ModelRequest(messages=[{"role": "user", "content": "Hello"}])
    async with LocalModel().stream(asked) as deltas:
        print((await anext(deltas)).text, flush=True)

asyncio.run(first())
"""


def run() -> Iterator[Result]:
    """Both results."""
    yield cold_start()
    yield tokens()


def cold_start(rounds: int = 5) -> Result:
    """From starting a process to its first token: Python, Sennit, the engine, the weights."""
    best = min(_first_token() for _ in range(rounds))
    return Result(
        "first token, cold start", best, _MAX_FIRST_TOKEN_SECONDS, "allowed", unit="s", bar=1
    )


def _first_token() -> float:
    start = perf_counter()
    with subprocess.Popen([sys.executable, "-c", _COLD], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.readline().strip()
        return perf_counter() - start


def tokens() -> Result:
    """Time per token, streamed through an event loop, beside one call of the bare engine."""
    bare = _bare_engine()
    body = {**DEFAULTS, "max_tokens": _TOKENS, "ignore_eos": True, "messages": _MESSAGES}
    params = {"max_tokens": _TOKENS, "extra_body": {"ignore_eos": True}}
    request = ModelRequest(messages=_MESSAGES, params=params)

    def ours(_: object) -> None:
        reply = asyncio.run(LocalModel().aask(request))
        assert reply.usage.output_tokens == _TOKENS

    def floor(_: object) -> None:
        answer = bare.handle_chat_completions(dict(body))
        assert answer["usage"]["completion_tokens"] == _TOKENS

    ours(None)
    floor(None)
    return compare(
        "a token of the local model",
        Work(ours),
        Work(floor),
        floor_name="xllamacpp itself",
        count=_TOKENS,
        bar=1 / 0.9,
    )


def _bare_engine() -> Any:
    import xllamacpp  # pyright: ignore[reportMissingTypeStubs]

    module: Any = xllamacpp
    options = module.CommonParams()
    options.model.path = str(find())
    options.n_ctx, options.verbosity = LocalModel().window, -1
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = default_threads()
    return module.Server(options)
