"""`python -m benchmarks.peers.programs`: run our programs and the rivals', and count them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.peers.programs import RULES, USERS, chat_at_once, run, serve
from benchmarks.peers.programs.concepts import concepts, lines
from benchmarks.provider import provider

_ROOT = Path(__file__).parents[3]
_RIVALS = Path(__file__).parent / "rivals"
_NAMES = {
    "pydantic_ai": "Pydantic AI",
    "llm": "llm",
    "mem0": "Mem0 and the OpenAI SDK",
    "openai_agents": "Agents SDK",
}
_PACKAGES = {
    "sennit": ("sennit",),
    "pydantic_ai": ("pydantic_ai",),
    "llm": ("llm",),
    "mem0": ("mem0", "openai"),
    "openai_agents": ("agents",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program, its rivals, and its bars."""

    name: str
    rivals: Sequence[str]
    expected: str
    """A part of what each of them prints or answers."""
    text: str = ""
    """The input."""
    max_lines: int
    max_concepts: int | None = None


PROGRAMS = (
    Program(
        name="hello_world",
        rivals=("pydantic_ai", "llm"),
        expected="The bowline.",
        max_lines=3,
        max_concepts=3,
    ),
    Program(
        name="support_agent",
        rivals=("pydantic_ai",),
        expected="Order 1042, a kettle, is refunded.",
        text="Please refund order 1042.\ny\n",
        max_lines=40,
    ),
    Program(
        name="experiment", rivals=("pydantic_ai",), expected="2 pairs in pairs.jsonl", max_lines=35
    ),
    Program(
        name="assistant_with_memory",
        rivals=("mem0",),
        expected="A curry without peanuts, Ada.",
        max_lines=30,
    ),
    Program(
        name="fastapi_app",
        rivals=("openai_agents",),
        expected=f"You are {USERS[-1]}.",
        max_lines=30,
    ),
)


def main() -> int:
    """Print the table; the exit code says whether all bars were met."""
    missed = 0
    rows = ["| program | lines | concepts | bar | | rival | lines | concepts |"]
    rows.append("|---|--:|--:|---|---|---|--:|--:|")
    with provider(RULES) as environment:
        for program in PROGRAMS:
            ours = _ROOT / "examples" / f"{program.name}.py"
            _check(program, Path(sys.executable), ours, environment)
            used = concepts(ours, _PACKAGES["sennit"])
            bar = f"≤ {program.max_lines} lines"
            met = lines(ours) <= program.max_lines
            if program.max_concepts is not None:
                bar += f", ≤ {program.max_concepts} concepts"
                met = met and len(used) <= program.max_concepts
            missed += not met
            verdict = "ok" if met else "MISSED"
            left = f"| {program.name} | {lines(ours)} | {len(used)} | {bar} | {verdict} "
            print(f"{program.name}, Sennit: {', '.join(used)}", file=sys.stderr)
            for rival in program.rivals:
                theirs = _RIVALS / f"{rival}_{program.name}.py"
                python = _ROOT / ".venv-peers" / rival / "bin" / "python"
                _check(program, python, theirs, environment)
                known = concepts(theirs, _PACKAGES[rival])
                print(f"{program.name}, {_NAMES[rival]}: {', '.join(known)}", file=sys.stderr)
                rows.append(f"{left}| {_NAMES[rival]} | {lines(theirs)} | {len(known)} |")
                left = "| | | | | "
    print("\n".join(rows))
    return 1 if missed else 0


def _check(program: Program, python: Path, path: Path, environment: Mapping[str, str]) -> None:
    """Run a program in an empty folder; raise RuntimeError unless it prints what is expected."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        variables = {**environment, "HOME": name, "MEM0_TELEMETRY": "False"}
        if program.name == "fastapi_app":
            with serve(python, path, folder, variables) as url:
                printed = "\n".join(chat_at_once(url))
        else:
            printed = run(python, path, folder, variables, program.text)
    if program.expected not in printed:
        raise RuntimeError(f"{path.name} printed {printed!r}, without {program.expected!r}.")


if __name__ == "__main__":
    raise SystemExit(main())
