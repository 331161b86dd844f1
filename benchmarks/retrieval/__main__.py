"""`make bench-retrieval`: the share of questions with all their evidence among the first results.

Plain BM25, `find` with words alone and `find` with MiniLM answer the same questions in one run,
about the talk of two people and about the talk of a user with an assistant. The two halves are
reported apart: nothing was tuned on the one that is held out. Differences have a 95 % interval, of
the questions' own differences. Prints tables, writes JSON beside the other results, and fails if a
bar is missed on the half that is held out. `--dev` leaves the other half out, `--words` the
embedder.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import sennit
from benchmarks.retrieval.assistant_talk import UNRELATED, assistant_talks
from benchmarks.retrieval.context import context_share
from benchmarks.retrieval.conversations import HALVES, Conversation, conversations, fill
from benchmarks.retrieval.plain import PlainBM25
from sennit import Client
from sennit.memory.retrieval.minilm import MiniLM

FIRST = (5, 10, 20)
PLAIN, WORDS, VECTORS = "plain BM25", "words", "words + MiniLM"
TALKS: dict[str, Callable[[str], list[Conversation]]] = {
    "two people": conversations,
    "an assistant": assistant_talks,
}
BARS = {
    "two people": {WORDS: 0.20, VECTORS: 0.24},
    "an assistant": {WORDS: 0.08, VECTORS: 0.14},
}
"""How far above plain BM25 the share at 10 has to be."""
OUTPUT = Path(__file__).parents[1] / "results" / "retrieval.json"

Ask: TypeAlias = Callable[[str], list[str]]
"""Gives the names of the turns found for a question, the best first."""
Answers: TypeAlias = "defaultdict[tuple[str, str, int], list[bool]]"
"""Whether all evidence was found, by ranker, kind of question and number of first results."""


def plain(conversation: Conversation) -> Ask:
    """The floor."""
    ranker = PlainBM25([turn.text for turn in conversation.turns])
    names = [turn.name for turn in conversation.turns]
    return lambda question: [names[at] for at in ranker.rank(question)]


def found_by(client: Client, names: dict[str, str], limit: int) -> Ask:
    """`client.find`, as anyone calls it."""

    def ask(question: str) -> list[str]:
        matches = client.find(question, limit=limit)
        return [names[str(match.evidence[0].message)] for match in matches]

    return ask


def measure(talks: Sequence[Conversation], folder: Path, *, vectors: bool) -> tuple[Answers, Any]:
    """The answers of all rankers, and the shares of the context measure."""
    answers: Answers = defaultdict(list)
    contexts: defaultdict[str, list[dict[str, float]]] = defaultdict(list)
    for talk in talks:
        path = str(folder / f"{talk.name}.db")
        ranker = plain(talk)
        for first in FIRST:
            _note(answers, PLAIN, talk, ranker, first)
        with sennit.open(path, durability="normal") as client:
            names = fill(client, talk)
            _ask_all(answers, WORDS, talk, client, names)
            contexts[WORDS].append(context_share(client, talk, names))
        if vectors:
            with sennit.open(path, embedder=MiniLM(threads=2)) as client:
                client.embed()
                _ask_all(answers, VECTORS, talk, client, names)
    return answers, {
        ranker: {key: sum(share[key] for share in shares) / len(shares) for key in shares[0]}
        for ranker, shares in contexts.items()
    }


def _ask_all(
    answers: Answers, ranker: str, talk: Conversation, client: Client, names: dict[str, str]
) -> None:
    for first in FIRST:
        _note(answers, ranker, talk, found_by(client, names, first), first)
    for question in talk.questions:
        if question.kind == UNRELATED:
            nothing = not client.find(question.text)
            answers[ranker, UNRELATED, 10].append(nothing)


def _note(answers: Answers, ranker: str, talk: Conversation, ask: Ask, first: int) -> None:
    for question in talk.questions:
        if question.evidence:
            hit = question.evidence <= set(ask(question.text)[:first])
            for kind in ("all", question.kind):
                answers[ranker, kind, first].append(hit)


def share(hits: Sequence[bool]) -> float:
    """The share that is true."""
    return sum(hits) / len(hits)


def gain(answers: Answers, ranker: str, kind: str = "all") -> tuple[float, float]:
    """How far a ranker is above plain BM25 at 10, and half of the 95 % interval of that."""
    pairs = zip(answers[ranker, kind, 10], answers[PLAIN, kind, 10], strict=True)
    gains = [int(ours) - int(floor) for ours, floor in pairs]
    mean = sum(gains) / len(gains)
    return mean, 1.96 * sqrt(sum((each - mean) ** 2 for each in gains)) / len(gains)


def table(title: str, answers: Answers) -> str:
    """The answers as a Markdown table."""
    rankers = list(dict.fromkeys(ranker for ranker, _, _ in answers))
    kinds = sorted({kind for _, kind, _ in answers} - {"all", UNRELATED})
    columns = [("all", first) for first in FIRST] + [(kind, 10) for kind in kinds]
    heads = [f"{kind}@{first}" for kind, first in columns]
    lines = [f"| {title} | " + " | ".join(heads) + " |", "|---" * (1 + len(columns)) + "|"]
    for ranker in rankers:
        values = " | ".join(f"{share(answers[ranker, *column]):.3f}" for column in columns)
        lines.append(f"| {ranker} | {values} |")
    for ranker in rankers[1:]:
        for kind in ("all", *kinds):
            mean, around = gain(answers, ranker, kind)
            lines.append(f"  {ranker}, {kind}: {100 * mean:+.1f} ± {100 * around:.1f} points")
        if nothing := answers.get((ranker, UNRELATED, 10)):
            lines.append(f"  {ranker}, nothing for unrelated questions: {share(nothing):.2f}")
    return "\n".join(lines)


def misses(talk: str, answers: Answers) -> list[str]:
    """The bars that were missed."""
    missed: list[str] = []
    for ranker, bar in BARS[talk].items():
        if (ranker, "all", 10) not in answers:
            continue
        mean, _ = gain(answers, ranker)
        print(f"  {talk}: {ranker} {100 * mean:+.1f} points (bar {100 * bar:+.0f})")
        if mean < bar:
            missed.append(f"{talk}, {ranker}: {100 * mean:+.1f}")
        for kind in {kind for _, kind, _ in answers} - {UNRELATED}:
            mean, around = gain(answers, ranker, kind)
            if mean < -around:
                missed.append(f"{talk}, {ranker}, {kind}: below BM25, {100 * mean:+.1f}")
    return missed


def main(arguments: Sequence[str]) -> int:
    """Measure; the exit code says whether the bars were held on the held-out half."""
    report: dict[str, Any] = {}
    missed: list[str] = []
    for half in HALVES[:1] if "--dev" in arguments else HALVES:
        for talk, read in TALKS.items():
            with TemporaryDirectory() as folder:
                answers, contexts = measure(
                    read(half), Path(folder), vectors="--words" not in arguments
                )
            asked = len(answers[PLAIN, "all", 10])
            print(f"\n{table(f'{talk}, {half}, {asked} questions', answers)}", flush=True)
            print(f"  context: {contexts}", flush=True)
            report[f"{talk}, {half}"] = {
                **{
                    f"{ranker}, {kind}@{first}": share(hits)
                    for (ranker, kind, first), hits in answers.items()
                },
                "context": contexts,
            }
            below = misses(talk, answers)
            missed += below if half == "held-out" else []
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(report, indent=1) + "\n")
    print("\n".join(["", *(f"MISSED {line}" for line in missed)]))
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
