"""The share of re-sent prompt tokens that a provider reads from its cache.

`make bench-cache`. Two hundred conversations with memory, tools, reasoning and forks, each until
its prompt has from 4,000 to 60,000 tokens. Each prompt is compared with those sent before it by the
rules that providers publish:

- OpenAI: the longest common beginning, in blocks of 128 tokens, from 1,024 tokens on
- Anthropic: the longest earlier prompt that is a beginning of this one, from 1,024 tokens on, where
  the last message of each prompt is a breakpoint

Only tokens that the rules can cache count: those of the prompt before, in whole blocks. A token is
four characters of the messages as JSON. All prompts are within the lifetime of a cache.
"""

from __future__ import annotations

import random
import sys
from bisect import bisect_left
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import Any

import sennit
from sennit.memory import MemoryContext
from sennit.messages.codec import dumps
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText
from sennit.testing import ScriptedModel, ToolCall

CONVERSATIONS = 200
MIN_TOKENS, MAX_TOKENS = 4_000, 60_000
BAR = 0.97
_BLOCK, _MINIMUM = 128, 1_024
_CHARS_PER_TOKEN = 4
_WORDS = (
    "kiln",
    "glaze",
    "cobalt",
    "parrot",
    "Lisbon",
    "rope",
    "bowline",
    "shed",
    "harbour",
    "tea",
)
_SYSTEM = "You are a careful assistant of a potter. " * 60


def look(place: str) -> str:
    """Look somewhere."""
    return f"At {place} there is " + "clay and ash and " * 40


def main() -> int:
    """Run the conversations and print the shares; the exit code says whether the bar was held."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CONVERSATIONS
    totals = {"OpenAI": [0, 0], "Anthropic": [0, 0]}
    prompts = 0
    for number in range(count):
        for name, cached, resent in _measure(_conversation(random.Random(number))):
            totals[name][0] += cached
            totals[name][1] += resent
            prompts += name == "OpenAI"
        shares = ", ".join(f"{name} {_share(*both):.2%}" for name, both in totals.items())
        progress = f"\r{number + 1} of {count} conversations, cache reads: {shares}"
        print(progress, end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    print(f"{count} conversations, {prompts:,} prompts\n")
    print("| rules | tokens sent again | read from the cache | |\n|---|--:|--:|---|")
    for name, (cached, resent) in totals.items():
        share = _share(cached, resent)
        verdict = "ok" if share >= BAR else "MISSED"
        print(f"| {name} | {resent:,} | {share:.2%} | {verdict} |")
    return int(any(cached < BAR * resent for cached, resent in totals.values()))


def _share(cached: int, resent: int) -> float:
    return cached / resent if resent else 0.0


def _conversation(chance: random.Random) -> list[bytes]:
    """Return the prompts of one conversation, in order."""
    limit = chance.randint(MIN_TOKENS, MAX_TOKENS) * _CHARS_PER_TOKEN
    prompts: list[bytes] = []
    with TemporaryDirectory() as folder, sennit.open(f"{folder}/s.db", user="nora") as client:
        _learn(client, chance, 0)
        session = client.session("long")
        branch = session.create_branch("main", system=_SYSTEM)
        turn = 0
        while not prompts or len(prompts[-1]) < limit:
            turn += 1
            if chance.random() < 0.05:
                branch = branch.fork(system=True)
            if chance.random() < 0.1:
                _learn(client, chance, turn)
            model = ScriptedModel(_replies(chance, turn), name="sage")
            contexts = [MemoryContext(client.memory)]
            chat = session.conversation(branch, model=model, tools=[look], contexts=contexts)
            chat.say(_sentence(chance, 10 + 60 * (turn % 5 == 0)))
            prompts += [b"".join(map(dumps, request.messages)) for request in model.requests]
    return prompts


def _learn(client: sennit.Client, chance: random.Random, turn: int) -> None:
    other = client.session(f"other{turn}")
    for text in (f"I bought a {chance.choice(_WORDS)} number {turn}.", f"My house is {turn}."):
        other.add_message("user", text)
        other.add_message("assistant", "I see.")
    other.commit()


def _replies(chance: random.Random, turn: int) -> list[Any]:
    answer = ReplyText(_sentence(chance, 40))
    last = Reply(items=(ReplyReasoning(_sentence(chance, 30)), answer)) if turn % 3 else answer.text
    calls = [
        [ToolCall("look", {"place": chance.choice(_WORDS)}, f"call_{turn}_{number}")]
        for number in range(chance.choice((0, 0, 1, 2)))
    ]
    return [*calls, last]


def _sentence(chance: random.Random, words: int) -> str:
    return " ".join(chance.choice(_WORDS) for _ in range(words))


def _measure(prompts: Sequence[bytes]) -> list[tuple[str, int, int]]:
    """Return the tokens read from a cache and those sent again, of each prompt but the first."""
    measured: list[tuple[str, int, int]] = []
    for at in range(1, len(prompts)):
        before, prompt = prompts[at - 1], prompts[at]
        resent = _cacheable(min(len(before), len(prompt)))
        if not resent:
            continue
        shared = _cacheable(_common_length(before, prompt))
        longest = max((len(one) for one in prompts[:at] if prompt.startswith(one)), default=0)
        measured.append(("OpenAI", shared, resent))
        measured.append(("Anthropic", min(_cacheable(longest), resent), resent))
    return measured


def _common_length(first: bytes, second: bytes) -> int:
    """Return the length of the common beginning."""
    size = min(len(first), len(second))
    return bisect_left(range(size), True, key=lambda at: first[: at + 1] != second[: at + 1])


def _cacheable(chars: int) -> int:
    """Return the tokens that can be cached of a beginning, in whole blocks."""
    tokens = chars // _CHARS_PER_TOKEN // _BLOCK * _BLOCK
    return tokens if tokens >= _MINIMUM else 0


if __name__ == "__main__":
    sys.exit(main())
