"""`make bench-retrieval`: the share of questions with all their evidence among the first results.

Plain BM25, `find` with words alone and `find` with MiniLM answer the same questions in one run. The
two halves are reported apart: nothing was tuned on the one that is held out. Prints tables, writes
JSON beside the other results, and fails if a bar is missed on the half that is held out.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import sennit
from benchmarks.retrieval.conversations import HALVES, Conversation, Question, conversations, fill
from benchmarks.retrieval.plain import PlainBM25
from sennit import Client
from sennit.memory.retrieval.minilm import MiniLM

FIRST = (5, 10, 20)
BARS = {"words": 0.15, "words + MiniLM": 0.18}
"""How far above plain BM25 the share at 10 has to be."""
OUTPUT = Path(__file__).parents[1] / "results" / "retrieval.json"

Ask: TypeAlias = Callable[[str], list[str]]
"""Gives the names of the turns found for a question, the best first."""
Shares: TypeAlias = dict[str, dict[str, float]]


def plain(conversation: Conversation) -> Ask:
    """The floor."""
    ranker = PlainBM25([turn.text for turn in conversation.turns])
    names = [turn.name for turn in conversation.turns]
    return lambda question: [names[at] for at in ranker.rank(question)]


def found_by(client: Client, names: dict[str, str]) -> Ask:
    """`client.find`, as anyone calls it."""

    def ask(question: str) -> list[str]:
        matches = client.find(question, limit=max(FIRST))
        return [names[str(match.evidence[0].message)] for match in matches]

    return ask


def measure(half: str, folder: Path) -> Shares:
    """The shares of all rankers on one half, by kind of question and for all."""
    seen: dict[str, dict[tuple[str, int], list[bool]]] = {}
    for conversation in conversations(half):
        path = folder / f"{conversation.name}.db"
        with sennit.open(str(path)) as client:
            names = fill(client, conversation)
            _note(seen, "plain BM25", conversation, plain(conversation))
            _note(seen, "words", conversation, found_by(client, names))
        with sennit.open(str(path), embedder=MiniLM()) as client:
            client.embed()
            _note(seen, "words + MiniLM", conversation, found_by(client, names))
    return {
        ranker: {f"{kind}@{first}": sum(hits) / len(hits) for (kind, first), hits in kinds.items()}
        for ranker, kinds in seen.items()
    }


def _note(
    seen: dict[str, dict[tuple[str, int], list[bool]]],
    ranker: str,
    conversation: Conversation,
    ask: Ask,
) -> None:
    kinds = seen.setdefault(ranker, defaultdict(list))
    for question in conversation.questions:
        ranked = ask(question.text)
        for first in FIRST:
            hit = question.evidence <= set(ranked[:first])
            for kind in ("all", question.kind):
                kinds[kind, first].append(hit)


def table(half: str, shares: Shares, questions: Iterable[Question]) -> str:
    """One half as a Markdown table."""
    kinds = ("all", *sorted({question.kind for question in questions}))
    columns = [f"all@{first}" for first in FIRST] + [f"{kind}@10" for kind in kinds[1:]]
    lines = [f"| {half} | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
    for ranker, ranker_shares in shares.items():
        values = " | ".join(f"{ranker_shares[column]:.3f}" for column in columns)
        lines.append(f"| {ranker} | {values} |")
    return "\n".join(lines)


def gains(shares: Shares) -> dict[str, float]:
    """How far above plain BM25 each ranker is at 10."""
    floor = shares["plain BM25"]["all@10"]
    return {
        ranker: ranker_shares["all@10"] - floor
        for ranker, ranker_shares in shares.items()
        if ranker in BARS
    }


def main() -> int:
    """Measure both halves; the exit code says whether the bars were held."""
    report: dict[str, Shares] = {}
    with TemporaryDirectory() as folder:
        for half in HALVES:
            report[half] = measure(half, Path(folder))
            asked = [
                question
                for conversation in conversations(half)
                for question in conversation.questions
            ]
            print(f"\n{len(asked)} questions\n\n{table(half, report[half], asked)}")
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n")
    missed = False
    for half, shares in report.items():
        for ranker, gain in gains(shares).items():
            passed = gain >= BARS[ranker]
            missed = missed or (half == "held-out" and not passed)
            verdict = "ok" if passed else "MISSED"
            bar = f"bar {100 * BARS[ranker]:+.0f}"
            print(f"{half}: {ranker} {100 * gain:+.1f} points ({bar}) {verdict}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
