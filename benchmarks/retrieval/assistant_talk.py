"""Long conversations of one user with an assistant, made from written parts by a seeded program.

Each of the four users of a half has fifty sittings of ten turns on ten topics: short requests, in
which a fact is sometimes mentioned in passing, and long answers with lists and code that repeat
what was asked and, half of the time, what was mentioned. All facts, questions and topics are
written by hand; the two halves share none of them. Each fact is told to two of the users: one is
asked for it in other words, one in the words it was told in.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.retrieval.conversations import Conversation, Question, Turn
from sennit.stores.search.tokenizer import STOP_WORDS

FOLDER = Path(__file__).parent / "assistant"
USER, ASSISTANT = "user", "assistant"
UNRELATED = "unrelated"
"""The kind of questions that nothing in the conversation is about."""
_USERS = 4
_SITTINGS, _EXCHANGES = 50, 5
_RETURN_SHARE = 0.7
"""How often the requests after a fact return to its subject."""
_SUBJECT_WORDS = 3
_DECOYS = 6
"""Requests in other sittings that are about the words of a question, without its answer."""
_FIRST_SITTING = datetime(2025, 1, 6, 18, 0, tzinfo=UTC)

_ASKS = (
    "Could you explain {thing} to a beginner?",
    "What should I look out for with {thing}?",
    "Can you make me a checklist for {thing}?",
    "I need some advice about {thing}.",
    "Give me a few ideas about {thing}, please.",
    "And what about {thing}?",
    "Tell me more about {thing}.",
    "Do you have any tips on {thing}?",
)
_REMARKS = (
    "I tried {thing} last week and it was only half a success.",
    "A friend of mine swears by {thing}.",
    "I keep reading about {thing}, and everybody says something different.",
    "I've put off {thing} for months now.",
    "My partner thinks that {thing} is a waste of time.",
    "So far I've had bad luck with {thing}.",
)
_JOINS = ("{fact} {ask}", "{ask} {fact}", "By the way, {fact} {ask}", "{ask} Oh, and {fact}")
_OPENINGS = (
    "Great question! With {thing}, a few things make most of the difference:",
    "Happy to help with {thing}. Here is what I would do:",
    "There are several ways to approach {thing}. The most useful ones are these:",
    "Sure! Let's go through {thing} step by step:",
)
_ECHOES = (
    "Thanks for telling me that {fact}",
    "It's good to know that {fact}",
    "I see, so {fact}",
    "That is useful context: {fact}",
)
_ITEMS = (
    "**{head}**: {act}, because {why}.",
    "{act}. After all, {why}.",
    "It helps to {act}; {why}.",
    "Many people {act}, since {why}.",
)
_RETURNS = (
    "Back to {one} and {other}: {ask}",
    "One more thing about {other} and {one}. {ask}",
    "{ask} I mean with {one} in mind, and {other}.",
)
_RETURNING_ITEMS = (
    "**{one} and {other}**: as far as {one} goes, {act}, because {why}.",
    "When it comes to {one}, {act}. With {other} in the picture, {why}.",
    "Given {other} and {one}, it helps to {act}.",
)
_CLOSINGS = (
    "Would you like me to go deeper into any of these points?",
    "Let me know how it goes with {thing}, and we can adjust the plan.",
    "If you tell me more about your situation, I can make this more specific to {thing}.",
    "Remember that {why}. Good luck!",
)
_OTHER_PERSON = {
    "i": "you", "i'm": "you're", "i've": "you've", "i'd": "you'd", "i'll": "you'll", "my": "your",
    "me": "you", "we": "you", "our": "your", "us": "you", "am": "are", "was": "were",
    "mine": "yours", "we're": "you're", "we've": "you've", "myself": "yourself", "we'll": "you'll",
}  # fmt: skip


@cache
def assistant_talks(half: str) -> list[Conversation]:
    """Return the conversations of one half, a conversation for each user."""
    data = json.loads((FOLDER / f"{half}.json").read_text())
    chance = Random(f"sennit {half}")
    facts = list(data["facts"])
    chance.shuffle(facts)
    talks: list[Conversation] = []
    for user in range(_USERS):
        talk = _Talk(data["topics"], Random(f"{half} {user}"))
        questions: list[Question] = []
        for at, fact in enumerate(facts):
            copy = (user - at) % _USERS
            if copy < len(fact["questions"]):
                question = fact["questions"][copy]
                evidence = frozenset(talk.tell(fact, question))
                questions.append(Question(fact["kind"], question, evidence))
        questions += [Question(UNRELATED, text, frozenset()) for text in data[UNRELATED]]
        talks.append(Conversation(f"{half}_{user}", half, talk.turns(), questions, is_chat=True))
    return talks


class _Talk:
    """The conversations of one user."""

    def __init__(self, topics: dict[str, Any], chance: Random) -> None:
        self._topics, self._chance = topics, chance
        self._sittings = list(topics) * (_SITTINGS // len(topics))
        chance.shuffle(self._sittings)
        self._facts: dict[tuple[int, int], list[str]] = {}
        self._subjects: dict[tuple[int, int], list[str]] = {}

    def tell(self, fact: dict[str, Any], question: str) -> list[str]:
        """Place the evidence of a fact in sittings on its topics, and return its turns."""
        evidence, used = [], set[int]()
        last = -1
        for topic, *texts in fact["evidence"]:
            free = [
                (sitting, exchange)
                for sitting, name in enumerate(self._sittings)
                for exchange in range(_EXCHANGES)
                if name == topic and sitting not in used and (sitting, exchange) not in self._facts
            ]
            later = [place for place in free if place[0] > last]
            if fact["kind"] == "update" and last < 0:  # leave room for what changes it
                later = later[: max(1, len(later) // 2)]
            place = self._chance.choice(later or free)
            last = place[0]
            used.add(place[0])
            self._facts[place] = texts
            subject = list(dict.fromkeys((*_key_words(question)[:1], *_key_words(texts[-1]))))
            self._subjects[place] = subject
            for decoy in self._chance.sample(free, _DECOYS):
                if decoy[0] != place[0]:
                    self._subjects.setdefault(decoy, _key_words(question))
            evidence.append(f"{place[0] + 1}.{2 * place[1] + len(texts)}")
        return evidence

    def turns(self) -> list[Turn]:
        """Return all turns in order."""
        turns: list[Turn] = []
        begins = _FIRST_SITTING
        for sitting, name in enumerate(self._sittings):
            begins += timedelta(
                days=self._chance.randint(2, 9), minutes=self._chance.randint(0, 90)
            )
            topic = self._topics[name]
            subject: list[str] = []
            for exchange in range(_EXCHANGES):
                texts = self._facts.get((sitting, exchange), [])
                subject = self._subjects.get((sitting, exchange), subject)
                pair = self._exchange(topic, texts, subject)
                for number, (speaker, text) in enumerate(
                    zip((USER, ASSISTANT), pair, strict=True), 1
                ):
                    at = begins + timedelta(minutes=2 * exchange + number)
                    turns.append(Turn(f"{sitting + 1}.{2 * exchange + number}", at, speaker, text))
        return turns

    def _exchange(
        self, topic: dict[str, Any], texts: list[str], subject: list[str]
    ) -> tuple[str, str]:
        """Return a request and the answer; one text is a fact of the user, two an answer's.

        Without a text they mostly return to the subject of the fact that was told last: words of it
        and of the question about it.
        """
        pick, thing = self._chance.choice, self._chance.choice(topic["things"])
        ask = pick((*topic["asks"], *_ASKS)).format(thing=thing)
        if len(texts) == 2:
            return texts[0], self._answer(topic, thing, "", [texts[1]], subject)
        if not texts and len(subject) > 1 and self._chance.random() < _RETURN_SHARE:
            one, other = self._chance.sample(subject, 2)
            request = pick(_RETURNS).format(one=one, other=other, ask=ask)
            return request, self._answer(topic, thing, "", [], subject)
        remark = pick(_REMARKS).format(thing=thing) if self._chance.random() < 0.5 else ""
        fact = texts[0] if texts else remark
        request = pick(_JOINS).format(fact=fact, ask=ask) if fact else ask
        return request, self._answer(topic, thing, fact, [], subject if texts else [])

    def _answer(
        self, topic: dict[str, Any], thing: str, fact: str, listed: list[str], subject: list[str]
    ) -> str:
        pick, chance = self._chance.choice, self._chance
        echo = (
            f"{pick(_ECHOES).format(fact=_to_you(fact))} " if fact and chance.random() < 0.5 else ""
        )
        items = [self._item(topic, thing) for _ in range(chance.randint(5, 9))]
        items += [f"{text}." for text in listed]
        if len(subject) > 1:
            items += [
                self._returning_item(topic, thing, subject) for _ in range(chance.randint(1, 4))
            ]
        chance.shuffle(items)
        lines = [f"{number}. {item}" for number, item in enumerate(items, 1)]
        if topic.get("code") and chance.random() < 0.4:
            lines.append(f"\n```\n{pick(topic['code'])}\n```\n")
        closing = pick(_CLOSINGS).format(thing=thing, why=pick(topic["whys"]))
        return "\n".join([echo + pick(_OPENINGS).format(thing=thing), "", *lines, "", closing])

    def _returning_item(self, topic: dict[str, Any], thing: str, subject: list[str]) -> str:
        one, other = self._chance.sample(subject, 2)
        act = self._chance.choice(topic["acts"]).format(thing=thing)
        why = self._chance.choice(topic["whys"])
        return self._chance.choice(_RETURNING_ITEMS).format(one=one, other=other, act=act, why=why)

    def _item(self, topic: dict[str, Any], thing: str) -> str:
        about = thing if self._chance.random() < 0.4 else self._chance.choice(topic["things"])
        act = self._chance.choice(topic["acts"]).format(thing=about)
        form = self._chance.choice(_ITEMS)
        act = act[0].upper() + act[1:] if form.startswith("{act}") else act
        head = about.removeprefix("a ").removeprefix("an ").capitalize()
        return form.format(head=head, act=act, why=self._chance.choice(topic["whys"]))


def _key_words(text: str) -> list[str]:
    """Return the longest words of a text, which stand for its subject."""
    words = {word for word in re.findall(r"\w+", text) if word.lower() not in STOP_WORDS}
    return sorted(sorted(words), key=len, reverse=True)[:_SUBJECT_WORDS]


def _to_you(fact: str) -> str:
    """Return a statement of the user as the assistant would repeat it."""
    words: list[str] = re.findall(r"[\w']+|\W+", fact)
    changed: list[str] = [_OTHER_PERSON.get(word.lower(), word) for word in words]
    return "".join(changed)
