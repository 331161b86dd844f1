"""The pieces of a stream: increments, finished messages and the result are told apart."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sennit.services.models.reply import ReplyReasoning
from sennit.testing import ToolCall
from sennit.turns.options import StreamingOptions
from sennit.turns.result import Return
from tests.conversation_fixtures import Talk

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=60)
calls = st.builds(ToolCall, st.just("add"), st.just({"a": 1, "b": 2}))
replies = st.lists(texts | texts.map(ReplyReasoning) | calls, min_size=1, max_size=5)
streaming = st.builds(
    StreamingOptions,
    coalesce_tokens=st.booleans(),
    coalesce_delay_ms=st.sampled_from([0, 5, 1000]),
    preferred_chunk_size=st.integers(1, 40),
)


def pieces_of(talk: Talk, options: StreamingOptions, *, sync: bool) -> list[Return]:
    conversation = talk.conversation()
    if sync:
        with conversation.stream(streaming_options=options) as pieces:
            return list(pieces)

    async def watch() -> list[Return]:
        return [piece async for piece in conversation.stream(streaming_options=options)]

    return asyncio.run(watch())


@given(st.lists(replies, max_size=3), texts, streaming, st.integers(1, 20), st.booleans())
def test_increments_joined_are_what_the_model_said(
    turns: list[Any], last: str, options: StreamingOptions, chunk: int, sync: bool
) -> None:
    talk = Talk(
        *([*reply, ToolCall("add", {"a": n, "b": 0})] for n, reply in enumerate(turns)),
        last,
        chunk=chunk,
    )
    pieces = pieces_of(talk, options, sync=sync)
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


def test_a_refused_run_streams_its_result_alone() -> None:
    talk = Talk(say=None)
    pieces = pieces_of(talk, StreamingOptions(), sync=False)
    assert [(piece.is_final, piece.stop_reason, str(piece)) for piece in pieces] == [
        (True, "invalid", "")
    ]
