"""Examples, scores and preferences, on branches as people make them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import Message, Session
from sennit.errors import NotFoundError, ValidationError
from sennit.learning.examples import merge_examples
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    SystemContent,
)
from sennit.sessions.segments import tail_of


def asked(text):
    return Message(InstructionContent(instruction=text))


def said(text):
    return Message(AssistantResponseContent(assistant_response=text))


def talk(session, branch, *lines):
    for n, line in enumerate(lines):
        session.add_message(asked(line) if n % 2 == 0 else said(line), branches=branch)


def shown(examples):
    return [(one.asked, one.answered) for one in examples]


def test_each_answered_instruction_is_an_example_with_its_history():
    session = Session()
    main = session.create_branch(
        name="main", system=Message(SystemContent(system_message="Be kind."))
    )
    talk(session, main, "Hi", "Hello!", "Who are you?", "A model.")
    first, second = session.to_examples("main")
    assert (first.asked, first.answered) == ("Hi", "Hello!")
    assert [m.content.words for m in first.history] == ["Be kind."]
    assert [m.content.words for m in second.history] == ["Be kind.", "Hi", "Hello!"]
    assert [m.content.words for m in second.messages] == [
        "Be kind.",
        "Hi",
        "Hello!",
        "Who are you?",
        "A model.",
    ]


def test_an_instruction_nobody_answered_is_history_not_an_example():
    session = Session()
    main = session.create_branch(name="main")
    for message in (asked("Hi"), asked("Are you there?"), said("Yes."), asked("Good")):
        session.add_message(message, branches=main)
    [only] = session.to_examples()
    assert only.asked == "Are you there?"
    assert [m.content.words for m in only.history] == ["Hi"]


def test_tool_calls_and_their_results_belong_to_the_answer():
    session = Session()
    main = session.create_branch(name="main")
    call = Message(ActionRequestContent(function="add", arguments={"a": 1}, call_id="c1"))
    result = Message(ActionResponseContent(request_id="c1", result=2))
    for message in (asked("1+1?"), call, result, said("2")):
        session.add_message(message, branches=main)
    [example] = session.to_examples()
    assert example.answer[:2] == [call, result]
    prompt, answer = example.to_chat()
    assert [m["role"] for m in prompt] == ["user"]
    assert [m["role"] for m in answer] == ["assistant", "tool", "assistant"]


def test_what_forks_share_comes_once():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "Hi", "Hello!")
    left, right = session.fork(main, name="left"), session.fork(main, name="right")
    talk(session, left, "a", "A")
    talk(session, right, "b", "B")
    assert shown(session.to_examples()) == [("Hi", "Hello!"), ("a", "A"), ("b", "B")]
    assert shown(session.to_examples([left, right, main])) == shown(session.to_examples())
    assert shown(session.to_examples("right")) == [("Hi", "Hello!"), ("b", "B")]


def test_a_branch_that_others_go_on_from_is_not_told_beside_them():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "Hi", "Hello!")
    more = session.fork(main, name="more")
    session.add_message(said("How are you?"), branches=more)
    session.fork(more, name="nothing new")
    assert shown(session.to_examples()) == [("Hi", "Hello!\n\nHow are you?")]


def test_examples_stay_as_they_were_when_the_branch_is_rewritten():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "Hi", "Hello!", "Who?", "Me.")
    _, second = session.to_examples()
    main.pop(0)
    assert [m.content.words for m in second.history] == ["Hi", "Hello!"]


def test_an_erased_message_is_gone_from_the_history_of_examples_too():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "Hi", "Hello!", "Who?", "Me.")
    _, second = session.to_examples()
    session.remove_message(main[0])
    assert [m.content.words for m in second.history] == ["Hello!"]


def test_histories_are_not_read_until_someone_looks(monkeypatch):
    session = Session()
    main = session.create_branch(name="main")
    for n in range(50):
        talk(session, main, f"q{n}", f"a{n}")
    reads = []
    original = type(tail_of(main)).between
    monkeypatch.setattr(
        type(tail_of(main)),
        "between",
        lambda self, start, stop: reads.append(stop - start) or original(self, start, stop),
    )
    examples = session.to_examples()
    assert sum(reads) == 100
    assert len(examples[-1].history) == 98


def test_a_chain_of_forks_costs_what_was_said_in_it(monkeypatch):
    session = Session()
    branch = session.create_branch(name="main")
    for n in range(200):
        talk(session, branch, f"q{n}", f"a{n}")
        branch = session.fork(branch)
    read = []
    original = type(tail_of(branch)).between
    monkeypatch.setattr(
        type(tail_of(branch)),
        "between",
        lambda self, start, stop: read.append(stop - start) or original(self, start, stop),
    )
    assert len(session.to_examples(list(session.branches))) == 200
    assert sum(read) < 1500


def test_labels_score_examples_and_min_score_filters_them():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "a", "A", "b", "B", "c", "C")
    first, second, _ = session.to_examples()
    session.label(first.answer[-1], 0.9, by="alice")
    session.label(first.answer[-1], thumb="down", by="bob")
    session.label(second.answer[-1], 0.8, by="alice")
    scores = [one.score for one in session.to_examples()]
    assert scores == [pytest.approx(0.45), 0.8, None]
    assert shown(session.to_examples(min_score=0.5)) == [("b", "B")]
    assert shown(session.to_examples(min_score=0.5, by="alice")) == [("a", "A"), ("b", "B")]


def test_a_strict_trajectory_ends_at_the_first_answer_that_falls_short():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "a", "A", "b", "B", "c", "C")
    for example, score in zip(session.to_examples(), (1.0, 0.2, 1.0), strict=True):
        session.label(example.answer[-1], score)
    assert shown(session.to_examples(min_score=0.5)) == [("a", "A"), ("c", "C")]
    kept = session.to_examples(min_score=0.5, strict_trajectory=True)
    assert shown(kept) == [("a", "A")]


def test_judging_again_replaces_and_unlabel_takes_back():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "a", "A")
    session.label(main[-1], 0.1)
    session.label(main[-1], 0.7)
    assert session.to_examples()[0].score == 0.7
    session.unlabel(main[-1])
    assert session.to_examples()[0].score is None


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "either a score or a thumb"),
        ({"score": 1, "thumb": "up"}, "either a score or a thumb"),
        ({"thumb": "sideways"}, "'sideways'"),
        ({"score": float("nan")}, "nan"),
        ({"score": 10**400}, "finite"),
        ({"score": "good"}, "'good'"),
        ({"score": 1, "by": ""}, "needs a judge"),
    ],
)
def test_a_label_that_makes_no_sense_is_refused(given, told):
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "a", "A")
    with pytest.raises(ValidationError, match=told):
        session.label(main[-1], **given)
    assert session.to_examples()[0].labels == ()


def test_a_message_of_another_session_cannot_be_labelled():
    with pytest.raises(NotFoundError):
        Session().label(said("elsewhere"), 1.0)


def test_score_asks_the_metric_once_per_example_and_keeps_what_it_says():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "a", "A", "b", "Bee")
    left = session.fork(main, name="left")
    talk(session, left, "c", "C")
    calls = []

    def length(example):
        calls.append(example.asked)
        return len(example.answered)

    scored = session.score(length)
    assert calls == ["a", "b", "c"]
    assert [one.score for one in scored] == [1.0, 3.0, 1.0]
    assert [one.labels[0].by for one in session.to_examples()] == ["length"] * 3


def test_a_metric_that_fails_leaves_all_labels_as_they_were():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "a", "A", "b", "B")
    with pytest.raises(ZeroDivisionError):
        session.score(lambda one: 1 if one.asked == "a" else 1 / 0)
    with pytest.raises(ValidationError, match="finite"):
        session.score(lambda one: None if one.asked == "b" else 1)  # pyright: ignore
    assert [one.labels for one in session.to_examples()] == [(), ()]


def test_a_regenerated_answer_that_is_liked_better_is_chosen():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "Hi", "Go away.")
    again = main.regenerate(main[-1])
    session.add_message(said("Hello!"), branches=again)
    third = main.regenerate(main[-1])
    session.add_message(said("Yo."), branches=third)
    session.label(main[-1], thumb="down")
    session.label(again[-1], thumb="up")
    session.label(third[-1], 0.5)
    pairs = session.to_preferences()
    assert [(p.chosen.answered, p.rejected.answered, p.margin) for p in pairs] == [
        ("Hello!", "Go away.", 1.0),
        ("Hello!", "Yo.", 0.5),
    ]
    assert [m.content.words for m in pairs[0].prompt] == ["Hi"]
    assert len(session.to_preferences(min_margin=0.7)) == 1
    with pytest.raises(ValidationError, match="min_margin"):
        session.to_preferences(min_margin=-1)


def test_answers_to_different_prompts_are_never_paired():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "Hi", "Hello!")
    edited = main.edit(main[0], "Hi there")
    session.add_message(said("Hello there!"), branches=edited)
    session.label(main[-1], 0.0)
    session.label(edited[-1], 1.0)
    assert session.to_preferences() == []


def test_equal_or_missing_scores_make_no_pair():
    session = Session()
    main = session.create_branch(name="main")
    talk(session, main, "Hi", "A")
    for answer in ("B", "C"):
        fork = main.regenerate(main[-1])
        session.add_message(said(answer), branches=fork)
    session.label(main[-1], 1.0)
    assert session.to_preferences() == []


def test_merging_lists_keeps_each_example_once():
    session, other = Session(), Session()
    for one in (session, other):
        talk(one, one.create_branch(name="main"), "Hi", "Hello!")
    merged = merge_examples(session.to_examples(), session.to_examples("main"), other.to_examples())
    assert len(merged) == 2


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from("qaf")), max_size=25))
def test_examples_of_all_branches_are_those_of_each_branch(steps):
    session = Session()
    branches = [session.create_branch()]
    for n, (which, kind) in enumerate(steps):
        branch = branches[which % len(branches)]
        if kind == "f":
            branches.append(session.fork(branch))
        else:
            session.add_message(asked(f"{n}") if kind == "q" else said(f"{n}"), branches=branch)

    def told(examples):
        return {
            (*(m.id for m in one.history), one.instruction.id, *one.answer_ids) for one in examples
        }

    together = session.to_examples(branches)
    alone = [one for branch in branches for one in told(session.to_examples(branch))]
    assert len(told(together)) == len(together)
    assert told(together) <= set(alone)
    # What is missing was cut short by a fork in the middle of an answer that goes on elsewhere.
    for one in set(alone) - told(together):
        assert any(one == other[: len(one)] for other in told(together))
    assert told(session.to_examples()) <= told(together)
