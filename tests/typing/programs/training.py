"""Training data: labels, scores, preferences and files."""

from collections.abc import Mapping
from pathlib import Path

import sennit
from sennit import Client
from sennit.learning import (
    FORMATS,
    Example,
    ExportOptions,
    ExportResult,
    Filter,
    Label,
    Preference,
    merge_examples,
)


def brevity(example: Example) -> float:
    return 1.0 / (1 + sum(len(message.text) for message in example.answer))


def hide(text: str) -> str:
    return text.replace("Ada", "A.")


def export(client: Client, folder: Path) -> Mapping[str, int]:
    session = client.session("ada")
    label: Label = session.label(session.messages[0], thumb="up", by="ada")
    scored: list[Example] = session.score(brevity)
    pairs: list[Preference] = session.to_preferences(min_margin=0.1)
    for pair in pairs:
        print(pair.chosen.answer[-1].text, pair.rejected.answer[-1].text)
    print(label.score + 1, len(merge_examples(scored, session.to_examples(min_score=0.5))))
    options = ExportOptions(
        format="openai", keep=Filter(min_score=0.5), split={"train": 0.9, "test": 0.1}, redact=hide
    )
    result: ExportResult = client.export_training(folder / "train.jsonl", options)
    for line in client.training_lines("ada", options):
        print(len(line))
    print(sorted(FORMATS), result.files["train"].name, result.skipped + result.sessions)
    return result.rows


if __name__ == "__main__":
    with sennit.open("chats.db") as opened:
        print(export(opened, Path()))
