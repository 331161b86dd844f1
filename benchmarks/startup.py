"""The processor time of a new process up to its first answer, beside the provider's own client.

Both sides ask the same scripted provider on loopback, which runs in a process of its own. The cost
of Python itself and of a bare HTTP request is subtracted from both. Runs alternate; medians count,
because an import takes seconds. Python may write bytecode, as it does by default: each program is
run once before it is measured.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator, Mapping
from statistics import median

from benchmarks.harness import Result
from benchmarks.provider import provider

RUNS = 10
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"

_OURS = """
import sennit
print(sennit.Session().conversation(model={model!r}).say("Name a knot.").text)
"""
_THEIRS = """
import asyncio
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.{module} import {type}
request = [ModelRequest.user_text_prompt("Name a knot.")]
reply = asyncio.run({type}({name!r}).request(request, None, ModelRequestParameters()))
print(reply.parts[0].content)
"""
_BARE = """
import json, os, urllib.request
message = {"role": "user", "content": "Name a knot."}
body = json.dumps({"model": "gpt-4.1", "messages": [message]}).encode()
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
with urllib.request.urlopen(urllib.request.Request(url, body)) as response:
    print(json.load(response)["choices"][0]["message"]["content"])
"""
_HELP = "import sys; from sennit.cli import main; sys.argv[1:] = ['--help']; main()"
_BARE_HELP = """
import typer
app = typer.Typer()
@app.command()
def chat(model: str = "local", store: str = ""): "Chat."
@app.command()
def serve(port: int = 1): "Serve."
app(["--help"])
"""


def run() -> Generator[Result]:
    """Measure each provider's first answer, and the help."""
    with provider([(["Name a knot."], ["The bowline."])]) as environment:
        for model, module, type_name in (
            ("openai:gpt-4.1", "openai", "OpenAIChatModel"),
            ("anthropic:claude-sonnet-4-5", "anthropic", "AnthropicModel"),
        ):
            provider_name, _, name = model.partition(":")
            programs = {
                "ours": _OURS.format(model=model),
                "theirs": _THEIRS.format(module=module, type=type_name, name=name),
                "bare": _BARE,
            }
            seconds = _median_seconds(programs, environment)
            yield Result(
                f"first answer of {provider_name}: in a new process",
                seconds["ours"] - seconds["bare"],
                seconds["theirs"] - seconds["bare"],
                f"pydantic-ai's {type_name}",
                unit="s of processor",
                bar=1.2,
            )
    seconds = _median_seconds({"ours": _HELP, "typer": _BARE_HELP}, os.environ)
    yield Result(
        "sennit --help",
        seconds["ours"],
        seconds["typer"],
        "the help of a typer program with two commands",
        unit="s of processor",
        bar=1.5,
    )


def _median_seconds(
    programs: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, float]:
    """Run the programs in turn; return the median processor time of each."""
    variables = {name: environment[name] for name in environment.keys() - {_NO_BYTECODE}}
    seconds: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(1 + RUNS):
        for name, program in programs.items():
            seconds[name].append(_processor_seconds(program, variables))
    return {name: median(values[1:]) for name, values in seconds.items()}


def _processor_seconds(program: str, environment: Mapping[str, str]) -> float:
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"A program ended with {process.returncode}:\n{program}")
    return usage.ru_utime + usage.ru_stime
