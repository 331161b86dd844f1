"""Preparing: one prompt out of a conversation; nothing is lost, changed or stale."""

from __future__ import annotations

import gc
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Branch,
    ContextPart,
    InstructionContent,
    InvalidTypeError,
    Message,
    MessageContent,
    NotFoundError,
    SennitError,
    Session,
    SystemContent,
    TextPart,
    Unset,
    clock,
    prepare_messages_for_chat,
)
from sennit.containers import Pile, Progression
from tests.strategies import Analysis, Search, contents, histories, lines_in, strings_in

PICTURE = "https://example.com/a.png"


def made(*contents: MessageContent) -> list[Message]:
    return [Message(content) for content in contents]


def prepared(*contents: MessageContent, newest: InstructionContent | None = None) -> Any:
    return prepare_messages_for_chat(made(*contents), new_instruction=newest)


def chat(*contents: MessageContent, newest: InstructionContent | None = None) -> Any:
    return prepare_messages_for_chat(made(*contents), new_instruction=newest, to_chat=True)


def wreck(value: Any) -> None:
    """Empty every list and dict within plain data."""
    if isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            wreck(inner)
        value.clear()


ask = InstructionContent
say = AssistantResponseContent
system = SystemContent


def result(said: Any, request_id: Any = Unset) -> ActionResponseContent:
    return ActionResponseContent(request_id, said)


def kept_strings(history: list[Message], results: str = "fields") -> list[str]:
    """Every string that a prompt must hold: all but later system messages and old schemas."""
    kept: list[str] = []
    led = False
    for message in history:
        content = message.content
        if isinstance(content, SystemContent):
            kept += [] if led else strings_in(content.system_message)
            led = True
        elif isinstance(content, InstructionContent):
            led = True
            kept += strings_in([content.instruction, content.context, content.images])
        elif isinstance(content, AssistantResponseContent):
            kept += strings_in(content.assistant_response)
        elif isinstance(content, ActionRequestContent):
            kept += strings_in([content.function, content.arguments])
        elif isinstance(content, ActionResponseContent):
            said = [content.request_id, content.result, content.error]
            kept += strings_in(said) if results == "fields" else [content.rendered]
    return [said for said in kept if said]


@given(histories())
def test_nothing_said_is_lost(history: list[Message]) -> None:
    told = "\0".join(strings_in(prepare_messages_for_chat(history, to_chat=True)))
    assert [line for line in lines_in(kept_strings(history)) if line not in told] == []


@given(histories())
def test_nothing_is_lost_exactly_as_it_was_said(history: list[Message]) -> None:
    records = [content.to_dict() for content in prepare_messages_for_chat(history)]
    told = list(strings_in(records))
    for said in kept_strings(history, results="rendered"):
        assert any(said in held for held in told)


@given(histories())
def test_what_was_said_keeps_its_order(history: list[Message]) -> None:
    told = "\0".join(strings_in(prepare_messages_for_chat(history, to_chat=True)))
    words = [
        said.rstrip("\n")
        for message in history
        for said in (
            getattr(message.content, "instruction", None),
            getattr(message.content, "assistant_response", None),
        )
        if said
    ]
    places = [told.index(said) for said in words]
    assert places == sorted(places)


@given(histories())
def test_both_forms_say_the_same(history: list[Message]) -> None:
    as_contents = prepare_messages_for_chat(history)
    as_chat = prepare_messages_for_chat(history, to_chat=True)
    assert as_chat == [content.chat_msg for content in as_contents]
    assert {message["role"] for message in as_chat} <= {"system", "user", "assistant"}
    assert all(message["content"] for message in as_chat)


@given(histories())
def test_no_two_assistant_texts_stand_side_by_side(history: list[Message]) -> None:
    kinds = [type(content) for content in prepare_messages_for_chat(history)]
    assert (AssistantResponseContent, AssistantResponseContent) not in list(pairwise(kinds))


@given(st.lists(contents, max_size=6))
def test_any_contents_can_be_prepared_without_changing_them(given_contents: list[Any]) -> None:
    history = made(*given_contents)
    with clock.wall_clock_from(lambda: 0):
        before = [message.to_json() for message in history]
        first = prepare_messages_for_chat(history, to_chat=True)
        expected = json.dumps(first)
        prepare_messages_for_chat(history)
        wreck(first)
        assert json.dumps(prepare_messages_for_chat(history, to_chat=True)) == expected
        assert [message.to_json() for message in history] == before
    assert [message.content for message in history] == given_contents


@given(histories(), st.data())
def test_what_says_nothing_is_skipped_without_a_trace(history: list[Message], data: Any) -> None:
    # An empty instruction may still carry results, hence only where none are waiting.
    place = data.draw(st.integers(0, len(history)))
    silent: Any = data.draw(st.sampled_from([ask(), say(), say(reasoning="hm")]))
    before = [m.content for m in history[:place]]
    if isinstance(silent, InstructionContent) and before:
        place = 0 if any(isinstance(c, ActionResponseContent) for c in before) else place
    with_silence = [*history[:place], Message(silent), *history[place:]]
    assert prepare_messages_for_chat(with_silence) == prepare_messages_for_chat(history)


def test_the_leading_system_text_goes_into_the_first_instruction() -> None:
    assert prepared(system("You are helpful"), ask("Hello")) == [ask("You are helpful\n\nHello")]
    assert chat(system("You are helpful"), ask("Hello")) == [
        {"role": "user", "content": "Instruction: You are helpful\n\nHello"}
    ]


def test_the_first_instruction_keeps_its_context_and_images() -> None:
    first = ask("Look", ["c"], images=[PICTURE])
    assert prepared(system("Be kind"), first) == [ask("Be kind\n\nLook", ["c"], images=[PICTURE])]


def test_an_instruction_without_words_carries_the_system_text_too() -> None:
    assert prepared(system("Be kind"), ask(context=["c"])) == [ask("Be kind", ["c"])]


def test_later_system_messages_are_skipped() -> None:
    assert prepared(system("one"), system("two"), ask("x"), system("three"), ask("y")) == [
        ask("one\n\nx"),
        ask("y"),
    ]
    assert prepared(ask("x"), system("late")) == [ask("x")]


def test_a_system_text_behind_what_says_nothing_still_leads() -> None:
    assert prepared(ask(), say(), system("Be kind"), ask("x")) == [ask("Be kind\n\nx")]


def test_the_system_text_waits_for_the_first_instruction() -> None:
    assert prepared(system("Be kind"), say("Hi"), ask("x")) == [say("Hi"), ask("Be kind\n\nx")]


def test_a_system_text_with_no_instruction_becomes_a_message_of_its_own() -> None:
    assert prepared(system("Be kind")) == [system("Be kind")]
    assert prepared(system("Be kind"), say("Hi")) == [system("Be kind"), say("Hi")]
    assert chat(system("Be kind")) == [{"role": "system", "content": "Be kind"}]


def test_a_system_text_with_no_instruction_goes_into_the_new_one() -> None:
    newest = ask("Hello")
    assert prepared(system("Be kind"), newest=newest) == [ask("Be kind\n\nHello")]
    assert newest == ask("Hello")


def test_a_system_message_that_says_nothing_is_left_out() -> None:
    assert prepared(system(), ask("x")) == [ask("x")]
    assert prepared(system()) == []
    assert chat(system(), say("Hi")) == [{"role": "assistant", "content": "Hi"}]


def test_results_go_into_the_context_of_the_next_instruction() -> None:
    history = [ask("x"), result({"data": 42}, "r"), result(None), ask("y", ["own"])]
    assert prepared(*history)[1] == ask(
        "y",
        [
            "own",
            "success: true\nrequest_id: r\nresult:\n  data: 42",
            "success: true\nresult: null",
        ],
    )
    assert chat(*history)[1]["content"] == (
        "Instruction: y\n\nContext:\n  - own\n  - success: true\n    request_id: r\n"
        "    result:\n      data: 42\n  - success: true\n    result: null"
    )


def test_a_failed_tool_is_told_as_failed() -> None:
    [told] = prepared(ActionResponseContent("r", result="half", error="boom"), ask("x"))
    assert told.context == ["success: false\nrequest_id: r\nerror: boom"]


def test_results_go_into_the_new_instruction() -> None:
    newest = ask("y")
    assert prepared(ask("x"), result(1), newest=newest) == [
        ask("x"),
        ask("y", ["success: true\nresult: 1"]),
    ]
    assert newest == ask("y")


def test_trailing_results_become_a_user_message_of_their_own() -> None:
    assert prepared(ask("x"), result(1), result(2)) == [
        ask("x"),
        ask(context=["success: true\nresult: 1", "success: true\nresult: 2"]),
    ]
    assert chat(result("done"))[0]["role"] == "user"
    assert "done" in chat(result("done"))[0]["content"]


def test_results_before_an_answer_wait_for_the_next_instruction() -> None:
    history = [ask("x"), result(1), say("Hm."), ask("y")]
    assert prepared(*history) == [
        ask("x"),
        say("Hm."),
        ask("y", ["success: true\nresult: 1"]),
    ]


def test_calls_stay_where_they_are() -> None:
    call = ActionRequestContent("f", {"a": 1})
    assert prepared(ask("x"), say("a"), call, say("b")) == [ask("x"), say("a"), call, say("b")]
    assert chat(call) == [{"role": "assistant", "content": "function: f\narguments:\n  a: 1"}]


def test_adjacent_assistant_texts_merge_with_a_blank_line() -> None:
    assert prepared(ask("x"), say("a"), say("b"), say("c"), ask("y"), say("d")) == [
        ask("x"),
        say("a\n\nb\n\nc"),
        ask("y"),
        say("d"),
    ]


def test_what_leaves_no_trace_does_not_keep_assistant_texts_apart() -> None:
    apart = [say("a"), say(), system("later"), ask(), result(1), say("b")]
    assert prepared(ask("x"), *apart)[1] == say("a\n\nb")


def test_tools_and_response_model_are_taken_off_historical_instructions() -> None:
    asked = ask("x", ["c"], [Search], Analysis, [PICTURE], "low")
    stripped = ask("x", ["c"], images=[PICTURE], image_detail="low")
    assert prepared(asked, say("ok")) == [stripped, say("ok")]
    assert prepared(asked, ask("y")) == [stripped, ask("y")]
    assert prepared(asked, newest=ask("y")) == [stripped, ask("y")]
    assert asked.tool_schemas == [Search]


def test_the_current_instruction_keeps_its_tools_and_response_model() -> None:
    asked = ask("x", tool_schemas=[Search], response_model=Analysis)
    assert prepared(ask("old"), asked) == [ask("old"), asked]
    assert prepared(newest=asked) == [asked]
    call = ActionRequestContent("f", {})
    assert prepared(asked, call, result(1))[0] == asked


def test_an_instruction_that_only_had_tools_is_left_out_of_history() -> None:
    assert prepared(ask(tool_schemas=[Search]), say("ok")) == [say("ok")]
    assert prepared(system("Be kind"), ask(tool_schemas=[Search]), say("ok"))[0].rendered


def test_a_new_instruction_comes_last_as_a_content_or_a_message() -> None:
    newest = ask("now", ["c"], [Search])
    for given_as in (newest, Message(newest)):
        told = prepare_messages_for_chat(made(ask("x"), say("a")), new_instruction=given_as)
        assert told == [ask("x"), say("a"), newest]


def test_groups_of_contexts_alone_are_skipped() -> None:
    session = Session()
    session.add_message("user", [TextPart("Hi"), ContextPart("viking://a")])
    session.add_message("assistant", [ContextPart("viking://b")])
    assert prepare_messages_for_chat(session.messages, session.default_branch) == [ask("Hi")]


def test_nothing_prepares_to_nothing() -> None:
    assert prepare_messages_for_chat([]) == []
    assert prepare_messages_for_chat(Pile(), Progression(), to_chat=True) == []


def test_a_progression_chooses_and_orders() -> None:
    one, two, three = history = made(ask("1"), ask("2"), ask("3"))
    order = [three.id, one.id, three.id]
    expected = [ask("3"), ask("1"), ask("3")]
    orders: list[Any] = [order, Progression(order), iter(order), [str(uid) for uid in order]]
    assert [prepare_messages_for_chat(history, order) for order in orders] == [expected] * 4
    orders[2] = (three, one, three)
    assert [prepare_messages_for_chat(Pile(history), order) for order in orders] == [expected] * 4
    assert prepare_messages_for_chat(iter(history)) == [ask("1"), ask("2"), ask("3")]
    assert two.content not in expected


def test_an_unknown_id_is_not_found() -> None:
    known, unknown = made(ask("a"), ask("b"))
    for order in ([unknown.id], Progression([unknown.id])):
        for given_as in ([known], Pile([known])):
            with pytest.raises(NotFoundError, match=str(unknown.id)):
                prepare_messages_for_chat(given_as, order)


@pytest.mark.parametrize(
    "newest",
    ["Hi", 5, {"instruction": "Hi"}, system("x"), Message(say("x"))],
    ids=lambda value: type(value).__name__,
)
def test_a_new_instruction_must_be_one(newest: Any) -> None:
    with pytest.raises(InvalidTypeError, match="new_instruction must be an instruction"):
        prepare_messages_for_chat([], new_instruction=newest)


@pytest.mark.parametrize("wrong", [None, 5, ["x"], [None], "text", [InstructionContent]], ids=str)
def test_what_are_no_messages_is_refused(wrong: Any) -> None:
    for order in (None, []):
        with pytest.raises(SennitError):
            prepare_messages_for_chat(wrong, order)


@pytest.mark.parametrize("order", [5, "text", [5], [None], ["no-uuid"]], ids=str)
def test_what_are_no_ids_is_refused(order: Any) -> None:
    for given_as in (made(ask("x")), Pile(made(ask("x")))):
        with pytest.raises(SennitError):
            prepare_messages_for_chat(given_as, order)


def test_a_branch_given_in_place_of_messages_is_refused() -> None:
    session = Session()
    session.add_message("user", "Hi")
    with pytest.raises(SennitError):
        prepare_messages_for_chat(session.default_branch)  # type: ignore[arg-type]


def test_a_rendering_error_is_raised_and_leaves_nothing_stale() -> None:
    def broken() -> str:
        if failing:
            raise ZeroDivisionError
        return "noon"

    failing = True
    session, branch = session_with(system("s", datetime_factory=broken), ask("x"))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            prepare_messages_for_chat(session.messages, branch, to_chat=True)
    failing = False
    [told] = prepare_messages_for_chat(session.messages, branch, to_chat=True)
    assert told["content"] == "Instruction: System Time: noon\n\ns\n\nx"


def session_with(*contents: MessageContent) -> tuple[Session, Branch]:
    session = Session()
    branch = session.create_branch("main")
    for content in contents:
        session.add_message(Message(content), branches=branch)
    return session, branch


TIMES = [
    (system("s", system_datetime=True), lambda now: datetime.fromtimestamp(now, UTC).isoformat()),
    (system("s", datetime_factory=lambda: str(clock.now_us())), lambda now: str(now * 10**6)),
]


@pytest.mark.parametrize(("content", "shown"), TIMES, ids=["true", "factory"])
@pytest.mark.parametrize("rest", [[], [ask("x")], [ask("x"), say("a"), ask("y")]], ids=len)
def test_the_time_is_never_kept(content: Any, shown: Callable[[int], str], rest: Any) -> None:
    session, branch = session_with(content, *rest)
    for second in (1, 2, 3):
        with clock.wall_clock_from(lambda now=second * 10**9: now):
            for to_chat in (True, False):
                told: Any = prepare_messages_for_chat(
                    session.messages,
                    branch,
                    to_chat=to_chat,  # type: ignore[call-overload]
                )
                first = told[0]["content"] if to_chat else told[0].rendered
                assert f"System Time: {shown(second)}\n\ns" in first


def test_the_caller_may_change_what_it_got() -> None:
    history = [
        system("s"),
        ask("x", [{"a": [1]}], images=[PICTURE]),
        say("a"),
        ActionRequestContent("f", {"a": [1]}),
        result({"rows": [1]}),
        ask("y", images=[PICTURE, PICTURE]),
        say("b"),
        ask("z"),
    ]
    session, branch = session_with(*history)
    expected = json.dumps(chat(*history))
    for _ in range(3):
        told = prepare_messages_for_chat(session.messages, branch, to_chat=True)
        assert json.dumps(told) == expected
        wreck(told)
    listed = prepare_messages_for_chat(session.messages, branch)
    listed.clear()
    assert prepare_messages_for_chat(session.messages, branch) == prepared(*history)


def test_a_removed_and_readded_id_is_read_anew() -> None:
    session, branch = session_with(ask("x"), say("old"))
    assert prepare_messages_for_chat(session.messages, branch)[1] == say("old")
    old = branch.messages[1]
    session.remove_message(old)
    session.add_message(Message(say("new"), id=old.id), branches=branch)
    assert prepare_messages_for_chat(session.messages, branch) == [ask("x"), say("new")]


def test_a_failed_reading_does_not_spoil_the_next_one() -> None:
    one, two = made(ask("1"), ask("2"))
    pile, order = Pile([one]), Progression([one.id, two.id])
    with pytest.raises(NotFoundError):
        prepare_messages_for_chat(pile, order)
    pile.add(two)
    assert prepare_messages_for_chat(pile, order) == [ask("1"), ask("2")]


def test_many_branches_prepared_in_turn_keep_to_themselves() -> None:
    session, branch = session_with(system("s"), ask("x"))
    forks = [session.fork(branch, system=True) for _ in range(20)]
    for round_number in range(3):
        for number, fork in enumerate(forks):
            session.add_message(Message(say(f"{number}.{round_number}")), branches=fork)
            told = prepare_messages_for_chat(session.messages, fork, to_chat=True)
            assert told == prepare_messages_for_chat(fork.messages, to_chat=True)


def test_a_prepared_branch_is_not_kept_alive() -> None:
    pile, order = Pile(made(ask("x"))), Progression()
    order.extend(pile.keys())
    prepare_messages_for_chat(pile, order)
    gone = ref(pile), ref(order)
    del pile, order
    gc.collect()
    assert [reference() for reference in gone] == [None, None]


def finishes(work: Callable[[], object]) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    return not thread.is_alive()


def test_a_factory_may_prepare_another_branch() -> None:
    inner, inner_branch = session_with(ask("x"))

    def factory() -> str:
        return str(len(prepare_messages_for_chat(inner.messages, inner_branch)))

    session, branch = session_with(system("s", datetime_factory=factory), ask("y"))
    told: list[Any] = []
    assert finishes(
        lambda: told.extend(prepare_messages_for_chat(session.messages, branch, to_chat=True))
    )
    assert told[0]["content"] == "Instruction: System Time: 1\n\ns\n\ny"


def test_preparing_under_the_sessions_lock_does_not_block_other_threads() -> None:
    in_factory, locked = threading.Event(), threading.Event()

    def factory() -> str:
        in_factory.set()
        locked.wait(5)
        return "noon"

    session, branch = session_with(system("s", datetime_factory=factory), ask("x"))
    other, other_branch = session_with(ask("y"))

    def under_the_lock() -> None:
        in_factory.wait(5)
        with session.lock:
            prepare_messages_for_chat(other.messages, other_branch)
            locked.set()
            prepare_messages_for_chat(session.messages, branch)

    one = threading.Thread(
        target=lambda: prepare_messages_for_chat(session.messages, branch, to_chat=True),
        daemon=True,
    )
    one.start()
    assert finishes(under_the_lock)
    one.join(10)
    assert not one.is_alive()


def test_threads_that_add_and_prepare_see_whole_conversations() -> None:
    session, branch = session_with(ask("start"))

    def add_and_prepare() -> None:
        for number in range(100):
            session.add_message(Message(ask(f"<{number}>")), branches=branch)
            told = prepare_messages_for_chat(session.messages, branch)
            if told[0] != ask("start") or len(told) > 401:
                wrong.append(told)

    wrong: list[Any] = []
    threads = [threading.Thread(target=add_and_prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    told = prepare_messages_for_chat(session.messages, branch)
    assert told == prepare_messages_for_chat(branch.messages)
    assert len(told) == 401


def said(number: int) -> list[MessageContent]:
    return [
        ask(f"<ask{number}>"),
        ask(f"<pic{number}>", images=[PICTURE]),
        ask(f"<tools{number}>", [f"<ctx{number}>"], [Search], Analysis),
        ask(tool_schemas=[Search]),
        ask(),
        say(f"<say{number}>"),
        say(),
        ActionRequestContent("f", {"n": number}),
        result(f"<res{number}>"),
        ActionResponseContent(error=f"<err{number}>"),
    ]


SYSTEMS: list[Any] = [
    None,
    system(),
    system("<sys>"),
    system("<sys>", system_datetime=True),
    system("<sys>", datetime_factory=lambda: str(clock.now_us())),
]
indexes = st.integers(0, 30)
kinds = st.integers(0, len(said(0)) - 1)


class PreparingABranch(RuleBasedStateMachine):
    """Whatever happens to branches, what is kept of them reads as what is made from scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.branches = [self.session.create_branch("main")]
        self.number = 0

    def pick(self, index: int) -> Branch:
        return self.branches[index % len(self.branches)]

    def add(self, kind: int) -> Message:
        self.number += 1
        return self.session.add_message(Message(said(self.number)[kind]))

    @rule(which=indexes, kind=kinds)
    def append(self, which: int, kind: int) -> None:
        self.session.add_message(self.add(kind), branches=self.pick(which))

    @rule(kind=kinds)
    def append_to_all(self, kind: int) -> None:
        self.session.add_message(self.add(kind), branches=self.branches)

    @rule(which=indexes, at=indexes, kind=kinds)
    def insert(self, which: int, at: int, kind: int) -> None:
        branch = self.pick(which)
        first = 1 if branch.system is not None else 0
        branch.insert(first + at % (len(branch) - first + 1), self.add(kind))

    @rule(which=indexes, at=indexes)
    def pop(self, which: int, at: int) -> None:
        branch = self.pick(which)
        if len(branch):
            branch.pop(at % len(branch))

    @rule(which=indexes)
    def pop_last(self, which: int) -> None:
        branch = self.pick(which)
        if len(branch):
            branch.pop()

    @rule(which=indexes, at=indexes, kind=kinds)
    def pop_and_append(self, which: int, at: int, kind: int) -> None:
        self.pop(which, at)
        self.append(which, kind)

    @rule(which=indexes, at=indexes)
    def remove_from_the_session(self, which: int, at: int) -> None:
        branch = self.pick(which)
        if len(branch):
            self.session.remove_message(branch[at % len(branch)])

    @rule(which=indexes, at=indexes, kind=kinds)
    def replace_under_the_same_id(self, which: int, at: int, kind: int) -> None:
        branch = self.pick(which)
        if len(branch):
            uid = branch[at % len(branch)]
            self.session.remove_message(uid)
            self.number += 1
            self.session.add_message(Message(said(self.number)[kind], id=uid), branches=branch)

    @rule(which=indexes)
    def reverse(self, which: int) -> None:
        self.pick(which).reverse()

    @rule(which=indexes)
    def clear(self, which: int) -> None:
        self.pick(which).clear()

    @rule(which=indexes, content=st.sampled_from(SYSTEMS))
    def set_system(self, which: int, content: Any) -> None:
        branch = self.pick(which)
        self.session.set_branch_system(branch, content and Message(content))

    @precondition(lambda self: len(self.branches) < 5)
    @rule(which=indexes, at=indexes, keep=st.sampled_from([None, True]))
    def fork(self, which: int, at: int, keep: Any) -> None:
        branch = self.pick(which)
        place = at % len(branch) if len(branch) else None
        self.branches.append(self.session.fork(branch, at=place, system=keep))

    @precondition(lambda self: len(self.branches) < 5)
    @rule(which=indexes, at=indexes)
    def edit(self, which: int, at: int) -> None:
        branch = self.pick(which)
        if len(branch):
            old = branch.messages[at % len(branch)]
            content = system("<edited>") if old == branch.system else ask("<edited>")
            self.branches.append(branch.edit(old, content))

    @rule(newest=st.sampled_from([None, ask("<new>"), ask("<new>", ["c"], [Search])]))
    def prepare_anew(self, newest: Any) -> None:
        self.compare(newest)

    @invariant()
    def what_is_kept_reads_as_what_is_fresh(self) -> None:
        self.compare(None)

    def compare(self, newest: Any) -> None:
        self.number += 1
        with clock.wall_clock_from(lambda now=self.number * 10**9: now):
            for branch in self.branches:
                fresh = prepare_messages_for_chat(branch.messages, None, newest, to_chat=True)
                kept = prepare_messages_for_chat(
                    self.session.messages, branch, newest, to_chat=True
                )
                assert kept == fresh
                wreck(kept)
                again = prepare_messages_for_chat(self.session.messages, branch, newest)
                assert again == prepare_messages_for_chat(branch.messages, None, newest)
                assert [content.chat_msg for content in again] == fresh


TestPreparingABranch = PreparingABranch.TestCase


@given(histories(max_size=8), st.data())
def test_a_pile_and_a_progression_read_as_a_list_after_any_change(
    history: list[Message], data: Any
) -> None:
    pile, order = Pile(history), Progression()
    for _ in range(data.draw(st.integers(1, 8))):
        change = data.draw(st.sampled_from(["append", "append", "pop", "insert", "swap", "remove"]))
        if change == "append" and history:
            order.append(data.draw(st.sampled_from(history)))
        elif change == "insert" and history:
            order.insert(data.draw(indexes), data.draw(st.sampled_from(history)))
        elif change == "pop" and len(order):
            order.pop(data.draw(st.integers(0, len(order) - 1)))
        elif change == "swap" and len(order):
            order.swap(0, data.draw(st.integers(0, len(order) - 1)))
        elif change == "remove" and len(order):
            order.remove(data.draw(st.sampled_from(list(order))))
        expected = prepare_messages_for_chat([pile.get(uid) for uid in order], to_chat=True)
        assert prepare_messages_for_chat(pile, order, to_chat=True) == expected
