"""The pieces of a stream: increments, finished messages and the result are told apart."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import sennit
from sennit import ModelError
from sennit.services.models.reply import Finished, ReasoningDelta, ReplyReasoning, TextDelta
from sennit.testing import ScriptedModel, ToolCall
from sennit.turns.options import StreamingOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import Talk
from tests.turns.playing import Speaker

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)
calls = st.builds(ToolCall, st.just("add"), st.just({"a": 1, "b": 2}))
replies = st.lists(texts | texts.map(ReplyReasoning) | calls, min_size=1, max_size=5)
streaming = st.builds(
    StreamingOptions,
    coalesce_tokens=st.booleans(),
    coalesce_delay_ms=st.sampled_from([0, 5, 1000]),
    preferred_chunk_size=st.integers(1, 40),
)


ways = st.sampled_from(["for", "with", "async for", "async with"])


def pieces_of(talk: Talk, options: StreamingOptions, way: str) -> list[Return]:
    stream = talk.conversation().stream(streaming_options=options)

    async def watch() -> list[Return]:
        if way == "async for":
            return [piece async for piece in stream]
        async with stream:
            return [piece async for piece in stream]

    if way.startswith("async"):
        return asyncio.run(watch())
    if way == "for":
        return list(stream)
    with stream:
        return list(stream)


@given(st.lists(replies, max_size=3), texts, streaming, st.integers(1, 20), ways)
def test_increments_joined_are_what_the_model_said(
    turns: list[Any], last: str, options: StreamingOptions, chunk: int, way: str
) -> None:
    talk = Talk(
        *([*reply, ToolCall("add", {"a": n, "b": 0})] for n, reply in enumerate(turns)),
        last,
        chunk=chunk,
    )
    pieces = pieces_of(talk, options, way)
    kinds = [(piece.is_delta, piece.is_message, piece.is_final) for piece in pieces]
    assert all(sum(kind) == 1 for kind in kinds)
    assert [kind[2] for kind in kinds] == [False] * (len(pieces) - 1) + [True]
    final = pieces[-1]
    assert final.success, final.notices
    assert "".join(map(str, pieces)) == final.text
    assert final.text.endswith(final.answer)
    whole = [one for piece in pieces if piece.is_message for one in piece.body.interactions]
    assert whole == list(final.body.interactions)
    for message in whole:
        of_it = [
            one for one in pieces if one.is_delta and one.body.interactions[0].id == message.id
        ]
        if message.role.value == "assistant" and of_it:
            assert "".join(map(str, of_it)) == Return(body=type(final.body)((message,))).text


halves = st.sampled_from(["\ud83d", "\ude00", "a\ud83d", "\ude00b", "c"])
deltas = st.lists(halves.map(TextDelta) | halves.map(ReasoningDelta), min_size=1, max_size=8)


@given(deltas, streaming, ways)
def test_increments_joined_are_the_answer_where_characters_are_cut(
    cut: list[Any], options: StreamingOptions, way: str
) -> None:
    talk = Talk()
    talk.session.services.register(Speaker([[*cut, Finished("stop")]]), replace=True)
    pieces = pieces_of(talk, options, way)
    assert "".join(map(str, pieces)) == pieces[-1].text
    assert pieces[-1].is_final


def test_a_refused_run_streams_its_result_alone() -> None:
    talk = Talk(say=None)
    pieces = pieces_of(talk, StreamingOptions(), "for")
    assert [(piece.is_final, piece.stop_reason) for piece in pieces] == [(True, "invalid")]


def test_a_result_prints_its_answer_or_its_error_and_nothing_at_the_end_of_a_stream() -> None:
    chat = sennit.conversation(ScriptedModel(["A bowline.", "A reef knot.", ModelError("No key.")]))
    assert str(chat.say("Name a knot")) == "A bowline."
    *_, last = chat.stream("Another one")
    assert (last.is_final, last.text, str(last)) == (True, "A reef knot.", "")
    assert "No key." in str(chat.say("And one more"))
