"""Replies: deltas in the order of arrival become what a model said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit.services.models.reply import (
    CallDelta,
    Delta,
    Finished,
    ReasoningDelta,
    Reply,
    ReplyAssembler,
    ReplyCall,
    ReplyReasoning,
    ReplyText,
    TextDelta,
    Usage,
)


def assembled(*deltas: Delta) -> Reply:
    assembly = ReplyAssembler()
    for delta in deltas:
        assembly.feed(delta)
    return assembly.reply()


def test_text_after_a_call_stays_after_it() -> None:
    reply = assembled(
        ReasoningDelta("hm"),
        TextDelta("Let me "),
        TextDelta("look."),
        CallDelta(0, "a", "search", '{"q":'),
        TextDelta("Meanwhile"),
        CallDelta(0, arguments=" 1}"),
        Finished("tool_calls", Usage(3, 4), "m"),
    )
    assert reply.items == (
        ReplyReasoning("hm"),
        ReplyText("Let me look."),
        ReplyCall("a", "search", '{"q": 1}'),
        ReplyText("Meanwhile"),
    )
    assert (reply.finish, reply.usage, reply.model) == ("tool_calls", Usage(3, 4), "m")


def test_interleaved_calls_are_kept_apart() -> None:
    reply = assembled(
        CallDelta(0, "a", "one", "{"),
        CallDelta(1, "b", "two", "["),
        CallDelta(0, arguments="}"),
        CallDelta(1, arguments="]"),
        Finished("tool_calls"),
    )
    assert reply.calls == (ReplyCall("a", "one", "{}"), ReplyCall("b", "two", "[]"))


@pytest.mark.parametrize("id", ["", "same"])
def test_blank_and_repeated_ids_become_unique(id: str) -> None:
    reply = assembled(CallDelta(0, id, "one"), CallDelta(1, id, "two"), Finished("tool_calls"))
    assert len({call.id for call in reply.calls} - {""}) == 2


def test_a_stream_that_never_says_it_ended_is_an_error() -> None:
    assert assembled(TextDelta("half")).finish == "error"


def test_a_call_at_the_length_limit_counts_as_cut_off() -> None:
    cut = assembled(CallDelta(0, "a", "one", '{"x"'), Finished("length"))
    whole = assembled(CallDelta(0, "a", "one", "{}"), Finished("tool_calls"))
    assert cut.cut_off == cut.calls[0]
    assert whole.cut_off is None


def test_costs_add_up_and_unknown_ones_stay_unknown() -> None:
    assert Usage(1, 2, 3, 4, 0.5) + Usage(1, 1, 1, 1) == Usage(2, 3, 4, 5, 0.5)
    assert (Usage() + Usage()).cost is None


_ITEMS = st.one_of(
    st.builds(ReplyText, st.text(min_size=1)),
    st.builds(ReplyReasoning, st.text(min_size=1)),
    st.builds(ReplyCall, st.uuids().map(str), st.text(min_size=1), st.text()),
)


@given(st.lists(_ITEMS, max_size=8))
def test_a_reply_told_as_deltas_comes_back_with_the_same_words(items: list[ReplyText]) -> None:
    reply = Reply(tuple(items), "stop", Usage(1, 2), "m")
    told = assembled(*reply.deltas())
    assert (told.text, told.reasoning, told.calls) == (reply.text, reply.reasoning, reply.calls)
    assert (told.finish, told.usage, told.model) == ("stop", Usage(1, 2), "m")
