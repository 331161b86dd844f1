"""Decisions on candidates: by rules, in view of what is known and of the batch itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit.memory.extraction.dedup import (
    MAX_MEMORY_CHARS,
    MAX_SIMILAR,
    TextRanker,
    decide_by_rules,
    merge_texts,
)
from sennit.memory.extraction.english.clauses import content_terms
from sennit.memory.extraction.terms import terms
from sennit.memory.extraction.values import Action, Candidate, KnownMemory, MemoryDecision
from tests.memory.saying import AT, Pair, candidate, found, known, pairs, user

DISTRACTIONS = {
    "profile": ["I own a bicycle.", "My shoe size is 43."],
    "preferences": ["I like the sea.", "I prefer aisle seats."],
    "entities": ["My aunt Greta paints.", "My project Zephyr has no users."],
    "events": ["I bought a tent in 1999.", "We decided to paint the fence."],
    "cases": ["Problem: the lamp was dark. Solution: a new bulb."],
    "patterns": ["When it rains, close the window."],
}


def decided(*candidates: Candidate, known: list[KnownMemory] | None = None) -> list[MemoryDecision]:
    return decide_by_rules(candidates, TextRanker(known or []))


def decide(pair: Pair) -> MemoryDecision:
    others = [
        known(pair.category, text, f"viking://other/{number}")
        for number, text in enumerate(DISTRACTIONS[pair.category])
    ]
    [decision] = decided(
        candidate(pair.category, pair.new), known=[*others, known(pair.category, pair.known)]
    )
    return decision


def judged(name: str) -> tuple[list[Pair], Counter[tuple[str, str]]]:
    """The pairs that went wrong, and the confusion table."""
    wrong: list[Pair] = []
    table: Counter[tuple[str, str]] = Counter()
    for pair in pairs(name):
        action = str(decide(pair).action)
        table[pair.kind, action] += 1
        if action not in pair.expected:
            wrong.append(pair)
    return wrong, table


def shown(table: Counter[tuple[str, str]]) -> str:
    kinds = ["same", "reworded", "changed", "contradicted", "similar"]
    rows = [f"{'':12}" + "".join(f"{action:>8}" for action in Action)]
    rows += [f"{kind:12}" + "".join(f"{table[kind, a]:8}" for a in Action) for kind in kinds]
    return "\n".join(rows)


@pytest.mark.parametrize("name", ["dedup.psv", "dedup_heldout.psv"])
def test_at_least_85_of_100_decisions_are_right(name: str) -> None:
    wrong, table = judged(name)
    total = table.total()
    print(f"\n{name}: {total - len(wrong)} of {total} right\n{shown(table)}")
    for pair in wrong:
        print(pair)
    assert len(wrong) <= 0.15 * total, [pair.new for pair in wrong]


def test_there_are_enough_pairs_of_every_kind_and_category() -> None:
    written = pairs("dedup.psv")
    assert len(written) >= 100
    assert len(pairs("dedup_heldout.psv")) >= 40
    assert len({pair.category for pair in written}) == 6
    assert min(Counter(pair.kind for pair in written).values()) >= 15


@pytest.mark.parametrize("name", ["dedup.psv", "dedup_heldout.psv"])
def test_an_event_or_case_is_never_merged_changed_or_dropped(name: str) -> None:
    lasting = [pair for pair in pairs(name) if pair.category in ("events", "cases")]
    assert lasting
    for pair in lasting:
        action = decide(pair).action
        same = pair.known.lower().rstrip(".!") == pair.new.lower().rstrip(".!")
        assert action is (Action.SKIP if same else Action.CREATE), pair


def test_the_same_words_on_another_day_are_another_event() -> None:
    first = candidate("events", "I have an interview on Monday.")
    later = replace(first, valid_from=AT + timedelta(days=70))
    assert [one.action for one in decided(first, later)] == [Action.CREATE, Action.CREATE]


def test_an_update_says_what_holds_now_and_since_when_the_old_does_not() -> None:
    [decision] = decided(
        candidate("profile", "I moved to Berlin last month."),
        known=[known("profile", "I live in Lisbon.")],
    )
    assert decision.action is Action.UPDATE
    assert decision.target == "viking://known"
    assert decision.text == "I moved to Berlin last month."
    assert decision.closed_at is not None
    assert decision.closed_at.isoformat().startswith("2026-10-01")


def test_an_update_without_a_date_closes_the_old_when_it_was_said() -> None:
    [decision] = decided(
        candidate("preferences", "I no longer like tea."),
        known=[known("preferences", "I like tea.")],
    )
    assert (decision.action, decision.closed_at) == (Action.UPDATE, AT)


def test_an_update_touches_only_the_sentence_that_changed() -> None:
    text = "My sister Anna is a doctor. My sister Anna lives in Porto. My sister Anna has a boat."
    [decision] = decided(
        candidate("entities", "My sister Anna moved to Madrid."), known=[known("entities", text)]
    )
    assert decision.action is Action.UPDATE
    assert decision.text == (
        "My sister Anna is a doctor. My sister Anna moved to Madrid. My sister Anna has a boat."
    )


def test_a_merge_keeps_what_both_say() -> None:
    [decision] = decided(
        candidate("entities", "My dog Rex is afraid of thunder."),
        known=[known("entities", "My dog Rex is a beagle")],
    )
    assert decision.action is Action.MERGE
    assert decision.text == "My dog Rex is a beagle. My dog Rex is afraid of thunder."


def test_a_memory_does_not_grow_without_end() -> None:
    long = "My dog Rex is a beagle. " + "x" * MAX_MEMORY_CHARS
    [decision] = decided(
        candidate("entities", "My dog Rex is afraid of thunder."), known=[known("entities", long)]
    )
    assert decision.action is Action.CREATE


def test_a_batch_does_not_repeat_itself() -> None:
    first, again = candidate("preferences", "I like tea."), candidate("preferences", "I love tea.")
    decisions = decided(first, again)
    assert [one.action for one in decisions] == [Action.CREATE, Action.SKIP]
    assert decisions[1].target == first.id


def test_a_batch_sees_what_it_changed_itself() -> None:
    moves = ["I moved to Berlin.", "I moved to Paris.", "I live in Paris."]
    decisions = decided(
        *(candidate("profile", text) for text in moves),
        known=[known("profile", "I live in Lisbon.")],
    )
    assert [one.action for one in decisions] == [Action.UPDATE, Action.UPDATE, Action.SKIP]
    assert {one.target for one in decisions} == {"viking://known"}


def test_a_change_in_the_same_conversation_updates_the_candidate_before_it() -> None:
    lived, moved = candidate("profile", "I live in Rome."), candidate("profile", "I moved to Pisa.")
    decisions = decided(lived, moved)
    assert [one.action for one in decisions] == [Action.CREATE, Action.UPDATE]
    assert decisions[1].target == lived.id


def test_what_no_longer_holds_is_not_known() -> None:
    closed = replace(known("profile", "I live in Lisbon."), valid_to=AT)
    [decision] = decided(candidate("profile", "I live in Lisbon."), known=[closed])
    assert decision.action is Action.CREATE


@pytest.mark.parametrize(
    "past", ["I lived in Rome until 2019.", "I lived in Rome.", "I used to live in Rome."]
)
def test_what_was_once_does_not_change_what_is_now(past: str) -> None:
    [said] = found(user(past))
    [decision] = decided(said, known=[known("profile", "I live in Lisbon.")])
    assert decision.action is Action.CREATE


def test_what_was_once_is_not_written_twice() -> None:
    [said] = found(user("I lived in Rome until 2019."))
    closed = replace(known("profile", said.text), valid_to=said.valid_to)
    assert [one.action for one in decided(said, known=[closed])] == [Action.SKIP]


def test_memories_of_another_category_are_not_compared() -> None:
    other = known("preferences", "I like tea.")
    decisions = decide_by_rules([candidate("patterns", "I like tea.")], lambda _: [other])
    assert [one.action for one in decisions] == [Action.CREATE]


def test_a_thousand_memories_do_not_hide_the_one_that_matters() -> None:
    many = [known("profile", f"I own house number {n}.", f"viking://{n}") for n in range(1000)]
    many.insert(500, known("profile", "I live in Lisbon."))
    [decision] = decided(candidate("profile", "I moved to Berlin."), known=many)
    assert (decision.action, decision.target) == (Action.UPDATE, "viking://known")


def test_the_ranker_gives_the_most_similar_first_and_only_a_few() -> None:
    many = [known("preferences", f"I like tea number {n}.", f"viking://{n}") for n in range(50)]
    event = known("events", "I drank green tea.", "viking://event")
    ranker = TextRanker([*many, known("preferences", "I like green tea."), event])
    ranked = ranker(candidate("preferences", "I enjoy green tea."))
    assert ranked[0].text == "I like green tea."
    assert len(ranked) == MAX_SIMILAR


def test_the_ranker_forgets_what_was_replaced() -> None:
    ranker = TextRanker([known("preferences", "I like tea.")])
    ranker.put(known("preferences", "I like jazz."))
    assert [one.text for one in ranker(candidate("preferences", "I hate jazz."))] == [
        "I like jazz."
    ]


_TOLD = st.sampled_from(
    [(pair.category, text) for pair in pairs("dedup.psv") for text in (pair.known, pair.new)]
)


@given(st.lists(_TOLD, max_size=8), st.lists(_TOLD, max_size=8))
def test_whatever_is_known_and_new_nothing_is_lost(
    old: list[tuple[str, str]], new: list[tuple[str, str]]
) -> None:
    stored = [known(category, text, f"v://{n}") for n, (category, text) in enumerate(old)]
    candidates = [candidate(category, text) for category, text in new]
    says = {one.id: one for one in stored}
    for one, decision in zip(candidates, decided(*candidates, known=stored), strict=True):
        assert decision.candidate is one
        if decision.action is Action.CREATE:
            says[one.id] = KnownMemory(id=one.id, category=one.category, text=decision.text)
            assert decision.text == one.text
            continue
        target = says[decision.target or ""]
        assert target.category is one.category
        if decision.action is Action.SKIP:
            assert decision.text == target.text
            continue
        assert one.category.mergeable
        assert one.text in decision.text
        assert (decision.closed_at is not None) == (decision.action is Action.UPDATE)
        if decision.action is Action.MERGE:
            assert content_terms(target.text) <= content_terms(decision.text)
        says[target.id] = replace(target, text=decision.text)


MORE_DETAIL = [
    ("profile", "I work at Acme.", "as a designer"),
    ("profile", "I live in Portugal.", "in Porto"),
    ("profile", "I'm married.", "with two cats"),
    ("profile", "I study physics.", "at ETH"),
    ("profile", "I speak French.", "at work"),
    ("profile", "I was born in 1990.", "in Lagos"),
    ("profile", "I'm vegetarian.", "at home"),
    ("profile", "I'm a software engineer.", "at ETH"),
    ("profile", "I'm allergic to peanuts.", "and shellfish"),
    ("preferences", "I prefer short answers.", "in German"),
    ("preferences", "I prefer short answers.", "with code examples"),
    ("preferences", "I prefer tea to coffee.", "in the morning"),
    ("preferences", "I use Python.", "for data analysis"),
    ("preferences", "I drink tea.", "with milk"),
    ("preferences", "I like jazz.", "at night"),
    ("preferences", "My favourite colour is blue.", "for cars"),
    ("preferences", "Always answer in French.", "with emojis"),
    ("entities", "My sister Anna lives in Rome.", "with her dog"),
    ("patterns", "When tests fail, read the log.", "twice"),
]


@pytest.mark.parametrize(("category", "told", "detail"), MORE_DETAIL)
def test_a_sentence_that_says_more_is_never_swallowed_as_a_repeat(
    category: str, told: str, detail: str
) -> None:
    more = f"{told.rstrip('.')} {detail}."
    [decision] = decided(candidate(category, more), known=[known(category, told)])
    assert decision.action is not Action.SKIP
    assert frozenset(terms(more)) <= frozenset(terms(decision.text))


@given(
    pair=st.sampled_from(pairs("dedup.psv") + pairs("dedup_heldout.psv")),
    detail=st.sampled_from([detail for _, _, detail in MORE_DETAIL]),
)
def test_no_content_word_of_a_new_sentence_is_lost(pair: Pair, detail: str) -> None:
    more = f"{pair.new.rstrip('.!')} {detail}."
    [decision] = decided(candidate(pair.category, more), known=[known(pair.category, pair.known)])
    wanted = frozenset(terms(detail)) - frozenset(terms(pair.new))
    assert wanted <= frozenset(terms(f"{decision.text} {pair.known}")), decision


@pytest.mark.parametrize(
    ("known", "new"),
    [
        ("I don't eat meat.", "I don't eat meat on Fridays."),
        ("I like Indian food.", "I like Indian food less than Thai food."),
        ("I like Dune.", "I like Dune 2."),
        ("I drink tea.", "I drink tea only with milk."),
    ],
)
def test_a_sentence_that_says_less_with_more_words_does_not_take_the_place_of_another(
    known: str, new: str
) -> None:
    assert merge_texts(known, new) == f"{known} {new}"


def test_one_sentence_that_covers_two_memories_merges_them_into_one() -> None:
    both = [
        known("preferences", "I like green tea.", "viking://green"),
        known("preferences", "I like tea with honey.", "viking://honey"),
    ]
    [decision] = decided(candidate("preferences", "I like green tea with honey."), known=both)
    assert decision.action is Action.MERGE
    assert {decision.target, *decision.absorbed} == {"viking://green", "viking://honey"}
    assert decision.text == "I like green tea with honey."
