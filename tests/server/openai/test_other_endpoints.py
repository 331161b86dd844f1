"""Completions that are read again, embeddings, token counts and the completions API of before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest

from sennit.memory.retrieval.embedders import WordEmbedder
from sennit.server.http.tokens import new_token, write_tokens
from sennit.server.settings import Limits
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import serving
from tests.openai_client import client, served

TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.mark.parametrize("stream", [False, True])
def test_a_completion_is_read_again_by_its_id(stream: bool) -> None:
    with served("The bowline.") as chat:
        answer = chat.ask(user("A knot?"), metadata={"topic": "knots"}, stream=stream)
        name = {chunk.id for chunk in answer}.pop() if stream else answer.id
        stored = chat.openai.chat.completions.retrieve(name)
        assert stored.id == name
        assert stored.choices[0].message.content == "The bowline."
        assert stored.usage.completion_tokens > 0
        assert stored.metadata == {"topic": "knots"}


def test_a_completion_with_calls_is_read_again_as_it_was() -> None:
    with served(["Let me look.", ToolCall("weather", {"city": "Oslo"}, "call_1")]) as chat:
        answer = chat.ask(user("Weather?"), tools=[TOOL])
        stored = chat.openai.chat.completions.retrieve(answer.id)
        assert stored.choices == answer.choices
        assert stored.usage == answer.usage


def test_a_completion_is_deleted_with_what_it_answers() -> None:
    with served("The bowline.", "It holds.") as chat:
        first = chat.ask(user("A knot?"))
        said = {"role": "assistant", "content": "The bowline."}
        second = chat.ask(user("A knot?"), said, user("Why?"))
        (session,) = chat.sessions()
        assert chat.openai.chat.completions.delete(second.id).deleted
        assert chat.said(session["id"]) == ["A knot?", "The bowline."]
        with pytest.raises(openai.NotFoundError):
            chat.openai.chat.completions.retrieve(second.id)
        assert chat.openai.chat.completions.delete(first.id).deleted
        assert chat.sessions() == []


def test_a_completion_that_was_not_stored_is_not_found() -> None:
    with served("The bowline.") as chat:
        answer = chat.ask(user("A knot?"), store=False)
        for name in (answer.id, "chatcmpl-", "chatcmpl-nothing", "resp_" + answer.id):
            with pytest.raises(openai.NotFoundError, match="no chat completion"):
                chat.openai.chat.completions.retrieve(name)


def test_a_completion_of_another_user_is_neither_read_nor_deleted(tmp_path: Path) -> None:
    entries = [new_token(user=name, scopes=["read", "write", "run"]) for name in ("ada", "bob")]
    write_tokens(tmp_path / "tokens.json", [token for _, token in entries])
    model = ScriptedModel(["The bowline."], name="sage")
    with serving(models=[model], tokens=tmp_path / "tokens.json") as server:
        (ada, _), (bob, _) = entries
        with client(server, ada) as owner, client(server, bob) as other:
            ask = owner.chat.completions.create
            answer = ask(model="sage", messages=[user("A knot?")])
            for attempt in (other.chat.completions.retrieve, other.chat.completions.delete):
                with pytest.raises(openai.NotFoundError):
                    attempt(answer.id)
            assert owner.chat.completions.retrieve(answer.id).id == answer.id


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_texts_are_embedded(encoding: Any) -> None:
    texts = ["a bowline holds", "a sheet bend joins"]
    with serving(embedder=WordEmbedder()) as server, client(server) as sdk:
        more = {} if encoding is None else {"encoding_format": encoding}
        answer = sdk.embeddings.create(model="words-64", input=texts, **more)
        assert [one.index for one in answer.data] == [0, 1]
        if encoding == "base64":
            assert isinstance(answer.data[0].embedding, str)
        else:
            assert [one.embedding for one in answer.data] == WordEmbedder().embed(texts)
        assert answer.usage.prompt_tokens > 0
        one = sdk.embeddings.create(model="words-64", input="a bowline holds")
        assert one.data[0].embedding == WordEmbedder().embed(texts)[0]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"input": []}, "at least one text"),
        ({"input": ["x", ""]}, "must not be empty"),
        ({"input": [1, 2, 3]}, "send texts"),
        ({"input": "x", "dimensions": 12}, "64 dimensions"),
        ({"input": ["x"] * 11}, "send fewer"),
    ],
)
def test_what_cannot_be_embedded_is_refused(fields: dict[str, Any], reason: str) -> None:
    with serving(embedder=WordEmbedder(), limits=Limits(items=10)) as server, client(server) as sdk:
        with pytest.raises(openai.APIStatusError, match=reason) as caught:
            sdk.embeddings.create(**{"model": "words-64", **fields})
        assert caught.value.status_code in (400, 413)


def test_an_unknown_embedder_is_not_found() -> None:
    with (
        serving(embedder=WordEmbedder()) as server,
        client(server) as sdk,
        pytest.raises(openai.NotFoundError, match="available: 'words-64'"),
    ):
        sdk.embeddings.create(model="text-embedding-3-small", input="x")


def test_a_prompt_is_answered_and_stored() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        answer = chat.openai.completions.create(model="sage", prompt="A knot:", max_tokens=20)
        assert (answer.object, answer.choices[0].text) == ("text_completion", "The bowline.")
        assert answer.choices[0].finish_reason == "stop"
        assert answer.usage.completion_tokens > 0
        chunks = list(
            chat.openai.completions.create(
                model="sage",
                prompt=["A bend:"],
                stream=True,
                stream_options={"include_usage": True},
            )
        )
        text = "".join(choice.text for chunk in chunks for choice in chunk.choices)
        assert text == "The sheet bend."
        assert chunks[-1].usage.completion_tokens > 0
        assert sorted(map(chat.said, [one["id"] for one in chat.sessions()])) == [
            ["A bend:", "The sheet bend."],
            ["A knot:", "The bowline."],
        ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": "a", "n": 2}, "n"),
        ({"prompt": "a", "echo": True}, "echo"),
        ({"prompt": "a", "suffix": "b"}, "suffix"),
        ({"prompt": "a", "logprobs": 3}, "logprobs"),
    ],
)
def test_a_prompt_that_cannot_be_answered_is_refused(fields: dict[str, Any], param: str) -> None:
    with served() as chat:
        with pytest.raises(openai.BadRequestError) as caught:
            chat.openai.completions.create(model="sage", **fields)
        assert caught.value.param == param


def test_the_tokens_of_an_input_are_counted_with_its_history() -> None:
    with served("The bowline. " * 50) as chat:
        count = chat.openai.responses.input_tokens.count
        alone = count(model="sage", input="Why?").input_tokens
        first = chat.openai.responses.create(model="sage", input="A knot?")
        more = count(model="sage", input="Why?", previous_response_id=first.id)
        assert (more.object, alone < 20) == ("response.input_tokens", True)
        assert 150 < more.input_tokens - alone < 200
        assert len(chat.model.requests) == 1
        conversation = chat.openai.conversations.create(
            items=[{"type": "message", "role": "user", "content": "word " * 100}]
        )
        long = count(model="sage", input="Why?", conversation=conversation.id).input_tokens
        assert 100 < long - alone < 150


def test_a_response_is_compacted_and_counted_without_anything_new() -> None:
    with served("The bowline.", "They spoke of knots.") as chat:
        first = chat.openai.responses.create(model="sage", input="A knot?")
        compacted = chat.openai.responses.compact(model="sage", previous_response_id=first.id)
        assert [item.type for item in compacted.output] == ["message", "compaction"]
        counted = chat.openai.responses.input_tokens.count(
            model="sage", previous_response_id=first.id
        )
        assert counted.input_tokens > 0
        for ask in (chat.openai.responses.create, chat.openai.responses.compact):
            with pytest.raises(openai.BadRequestError, match="at least one item"):
                ask(model="sage")


def test_a_conversation_is_compacted_and_taken_up_from_its_summary() -> None:
    with served("The bowline.", "They spoke of the bowline.", "It holds.", "Short.") as chat:
        first = chat.openai.responses.create(model="sage", input="Name a knot.")
        compacted = chat.openai.responses.compact(
            model="sage", input="And a bend?", previous_response_id=first.id
        )
        assert compacted.object == "response.compaction"
        assert compacted.usage.output_tokens > 0
        *said, last = compacted.output
        assert [one.content[0].text for one in said] == ["Name a knot.", "And a bend?"]
        assert last.type == "compaction"
        assert [message["content"] for message in chat.asked()[:3]] == [
            "Name a knot.",
            "The bowline.",
            "And a bend?",
        ]
        items = [one.to_dict(warnings=False) for one in compacted.output]
        again = chat.openai.responses.create(
            model="sage", input=[*items, {"role": "user", "content": "Why?"}]
        )
        assert again.output_text == "It holds."
        shown = [message["content"] for message in chat.asked()]
        assert shown[-1] == "Why?"
        assert "They spoke of the bowline." in shown[-2]
        assert "The bowline." not in shown
        once_more = chat.openai.responses.compact(model="sage", input=items)
        assert [one.type for one in once_more.output] == ["message", "message", "compaction"]


@pytest.mark.parametrize("content", ["", "????", "e30=", "bm8="])
def test_a_summary_of_another_server_is_refused(content: str) -> None:
    item = {"type": "compaction", "encrypted_content": content}
    with served() as chat:
        with pytest.raises(openai.BadRequestError, match="must come from") as caught:
            chat.openai.responses.create(model="sage", input=[item])
        assert caught.value.param == "input[0]"
