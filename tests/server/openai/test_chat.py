"""Chat completions, as the official client of OpenAI uses them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from http.client import HTTPConnection
from pathlib import Path
from signal import SIGKILL
from threading import Event
from time import monotonic
from typing import Any

import anyio
import pytest
from openai import (
    APIError,
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    NotFoundError,
    RateLimitError,
)

import sennit
from sennit import ModelError
from sennit.server.http.tokens import new_token, write_tokens
from sennit.server.openai import derived_sessions
from sennit.server.openai.derived_sessions import MAX_BRANCHES
from sennit.services.models.reply import Reply, ReplyReasoning, ReplyText, Usage
from sennit.stores.sqlite.store import SQLiteStore
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Gate, Running, Talker, serving
from tests.http_server_process import served as served_apart
from tests.openai_client import client, served

USER = {"role": "user", "content": "Name a knot."}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The forecast for a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


def until(look: Callable[[], Any]) -> Any:
    """What is found, once there is something."""
    end = monotonic() + 30
    while not (found := look()):
        assert monotonic() < end, "it did not come about"
    return found


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_a_completion_is_answered_counted_and_kept() -> None:
    with served("The bowline.") as chat:
        answer = chat.ask(USER)
        assert answer.choices[0].message.content == "The bowline."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.object == "chat.completion"
        assert answer.model == "sage"
        assert answer.usage.prompt_tokens > 0
        assert (
            answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
        )
        (session,) = chat.sessions()
        assert chat.said(session["id"]) == ["Name a knot.", "The bowline."]


def test_a_stream_tells_the_answer_piece_by_piece() -> None:
    with served("Over, under, through. " * 20, chunk=10) as chat:
        chunks = list(chat.ask(USER, stream=True))
        said = "".join(one.choices[0].delta.content or "" for one in chunks)
        assert said == "Over, under, through. " * 20
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [one.choices[0].finish_reason for one in chunks][-1] == "stop"
        assert len(chunks) > 4
        assert len({one.id for one in chunks}) == 1
        assert all(one.usage is None for one in chunks)


def test_a_stream_counts_tokens_when_asked_to() -> None:
    with served("The bowline.") as chat:
        *_, last = chat.ask(USER, stream=True, stream_options={"include_usage": True})
        assert last.choices == []
        assert last.usage.prompt_tokens > 0
        assert last.usage.completion_tokens > 0


def test_a_history_that_goes_on_is_one_branch() -> None:
    with served("The bowline.", "The sheet bend.", "The clove hitch.") as chat:
        history = [USER]
        for more in ("Another.", "One more."):
            history += [assistant(chat.ask(*history).choices[0].message.content), user(more)]
        chat.ask(*history)
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 6
        assert chat.said(session["id"])[-2:] == ["One more.", "The clove hitch."]
        assert [one["content"] for one in chat.asked()] == chat.said(session["id"])[:-1]


def test_a_history_that_diverges_forks() -> None:
    with served("The bowline.", "The sheet bend.", "The clove hitch.") as chat:
        chat.ask(USER)
        chat.ask(USER, assistant("The bowline."), user("Another."))
        chat.ask(USER, assistant("The bowline."), user("A third."))
        (session,) = chat.sessions()
        one, two = chat.branches(session["id"])
        assert two["forked_from"] == {
            "branch_id": one["id"],
            "branch_name": "main",
            "message_count": 2,
        }
        assert chat.said(session["id"], two["name"])[2:] == ["A third.", "The clove hitch."]


def test_asking_the_same_again_forks_before_the_answer() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        chat.ask(USER)
        again = chat.ask(USER)
        assert again.choices[0].message.content == "The sheet bend."
        (session,) = chat.sessions()
        one, two = chat.branches(session["id"])
        assert (one["message_count"], two["message_count"]) == (2, 2)
        assert [one["content"] for one in chat.asked()] == ["Name a knot."]


def test_an_answer_that_the_client_changed_is_a_branch_of_its_own() -> None:
    with served("The bowline.", "Yes.") as chat:
        chat.ask(USER)
        chat.ask(USER, assistant("The granny knot."), user("Really?"))
        told = [one["content"] for one in chat.asked()]
        assert told == ["Name a knot.", "The granny knot.", "Really?"]
        (session,) = chat.sessions()
        assert len(chat.branches(session["id"])) == 2


def test_a_system_message_that_changes_does_not_break_the_conversation() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        chat.ask({"role": "system", "content": "It is noon."}, USER)
        late = {"role": "developer", "content": "It is midnight."}
        chat.ask(late, USER, assistant("The bowline. "), user("Another."))
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 5
        assert chat.asked()[0] == {"role": "system", "content": "It is midnight."}


def test_a_conversation_is_found_again_after_a_restart(tmp_path: Path) -> None:
    with served("The bowline.", store=tmp_path / "s.db") as chat:
        chat.ask(USER)
    with served("The sheet bend.", store=tmp_path / "s.db") as chat:
        chat.ask(USER, assistant("The bowline."), user("Another."))
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 4


def test_conversations_that_begin_alike_fill_several_sessions() -> None:
    count = MAX_BRANCHES + 3
    with served(*(f"Knot {number}." for number in range(count)), "More.") as chat:
        for _ in range(count):
            chat.ask(USER)
        full, last = sorted(
            (len(chat.branches(one["id"])) for one in chat.sessions()), reverse=True
        )
        assert (full, last) == (MAX_BRANCHES, 3)
        chat.ask(USER, assistant("Knot 0."), user("Another."))  # stands in the first of them
        assert sum(len(chat.branches(one["id"])) for one in chat.sessions()) == count


def test_however_many_begin_alike_each_goes_on_where_it_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(derived_sessions, "MAX_BRANCHES", 2)
    count = 12  # which takes six sessions
    with served(*(f"Knot {number}." for number in range(2 * count))) as chat:
        for _ in range(count):
            chat.ask(USER)
        for number in range(count):
            chat.ask(USER, assistant(f"Knot {number}."), user("Another."))
        branches = [one for each in chat.sessions() for one in chat.branches(each["id"])]
        assert [one["message_count"] for one in branches] == [4] * count


def test_nothing_is_read_from_the_store_for_those_who_begin_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(derived_sessions, "MAX_BRANCHES", 5)
    count, read = 12, list[str]()
    with served(*(f"Knot {number}." for number in range(count)), store=tmp_path / "s.db") as chat:
        chat.ask(USER)
        for name in ("load", "changes"):
            asked = getattr(SQLiteStore, name)
            monkeypatch.setattr(
                SQLiteStore,
                name,
                lambda *given, asked=asked: (read.append("read"), asked(*given))[1],
            )
        for _ in range(count - 1):
            chat.ask(USER)
        assert read == []
        branches = [one for each in chat.sessions() for one in chat.branches(each["id"])]
        assert [one["message_count"] for one in branches] == [2] * count


def test_a_conversation_begins_in_three_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One makes the branch and takes it, one holds what was asked, one the answer."""
    counted = list[int]()
    write_many = SQLiteStore.write_many

    def counting(store: SQLiteStore, writes: Any) -> Any:
        counted.append(len(writes))
        return write_many(store, writes)

    monkeypatch.setattr(SQLiteStore, "write_many", counting)
    with served("The bowline.", "The sheet bend.", "A reef.", store=tmp_path / "s.db") as chat:
        again = (USER, 2)  # a fork, where the question stands already
        for said, writes in ((USER, 3), (user("Name a bend."), 3), again):
            chat.ask(said)
            assert sum(counted) == writes
            counted.clear()


def test_many_who_begin_alike_at_once_are_all_kept_apart() -> None:
    count = 12
    replies = [f"Knot {number}." for number in range(count)]
    with served(*replies, "More.", delay=0.02) as chat, ThreadPoolExecutor(count) as pool:
        for one in [pool.submit(chat.ask, USER) for _ in range(count)]:
            one.result()
        (session,) = chat.sessions()
        branches = [one["name"] for one in chat.branches(session["id"])]
        said = [chat.said(session["id"], one) for one in branches]
        assert sorted(said) == sorted([USER["content"], reply] for reply in replies)
        chat.ask(USER, assistant("Knot 7."), user("Another."))
        assert len(chat.branches(session["id"])) == count


def test_a_stream_that_has_ended_can_be_gone_on_with_at_once() -> None:
    with served("One.", "Two.", "Three.") as chat:
        history: list[Any] = [USER]
        for _ in range(3):
            pieces = chat.ask(*history, stream=True)
            text = "".join(one.choices[0].delta.content or "" for one in pieces)
            history += [assistant(text), user("Another.")]
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 6


def test_owners_never_meet(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    made = [new_token(user=name) for name in ("ada", "bob")]
    write_tokens(tokens, [line for _, line in made])
    model = ScriptedModel(["For Ada.", "For Bob.", "For Bob again."], name="sage")
    with serving(tmp_path / "s.db", models=[model], tokens=tokens) as server:
        ada, bob = (client(server, key) for key, _ in made)
        ada.chat.completions.create(model="sage", messages=[USER])
        response = ada.responses.create(model="sage", input="Name a knot.", store=True)
        history = [USER, assistant("For Ada."), user("Another.")]
        bob.chat.completions.create(model="sage", messages=history)
        assert len(model.requests[-1].messages) == 3
        with pytest.raises(NotFoundError):
            bob.responses.retrieve(response.id)
        with pytest.raises(AuthenticationError):
            client(server, "snt_wrong").models.list()


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("named", [False, True], ids=["found", "named"])
def test_a_conversation_that_another_program_deleted_begins_anew(
    tmp_path: Path, named: bool, stream: bool
) -> None:
    store = tmp_path / "s.db"
    headers = {"X-Sennit-Session": "knots"} if named else {}
    with served("The bowline.", "The sheet bend.", "The clove hitch.", store=store) as chat:
        chat.ask(USER, extra_headers=headers)
        with sennit.open(store) as other:
            assert other.delete_session(other.sessions()[0].id)
        more = [USER, assistant("The bowline."), user("Another.")]
        for text in ("The sheet bend.", "The clove hitch."):
            sent = more[-1:] if named else more
            answer = chat.ask(*sent, extra_headers=headers, stream=stream)
            chunks = list(answer) if stream else [answer]
            told = [getattr(one.choices[0], "delta" if stream else "message") for one in chunks]
            assert "".join(one.content or "" for one in told) == text
            more += [assistant(text), user("One more.")]
        (session,) = chat.sessions()
        kept = ["Another.", "The sheet bend.", "One more.", "The clove hitch."]
        assert chat.said(session["id"])[-4:] == kept
        assert len(chat.said(session["id"])) == (4 if named else 6)


def test_a_named_session_takes_only_what_is_new_or_the_whole_history() -> None:
    with served("The bowline.", "The sheet bend.", "The clove hitch.") as chat:
        headers = {"X-Sennit-Session": "knots"}
        chat.ask(USER, extra_headers=headers)
        chat.ask(user("Another."), metadata={"session": "knots"})
        told = [one["content"] for one in chat.asked()]
        assert told == ["Name a knot.", "The bowline.", "Another."]
        whole = [USER, assistant("The bowline."), user("Another."), assistant("The sheet bend.")]
        chat.ask(*whole, user("More."), extra_headers=headers)
        assert chat.said("knots")[-2:] == ["More.", "The clove hitch."]
        assert len(chat.branches("knots")) == 1


def test_what_a_named_session_is_sent_can_be_declared() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        chat.ask(USER, metadata={"session": "knots"})
        chat.ask(USER, metadata={"session": "knots", "history": "whole"})
        assert [one["content"] for one in chat.asked()] == ["Name a knot."]
        assert len(chat.branches("knots")) == 2


def test_a_request_that_is_refused_leaves_the_system_message_of_the_branch(tmp_path: Path) -> None:
    gate = Gate()
    with (
        serving(tmp_path / "s.db", models=[Talker("sage", gate)]) as server,
        client(server) as openai,
        ThreadPoolExecutor(1) as pool,
    ):

        def ask(system: str) -> list[Any]:
            said: Any = [{"role": "system", "content": system}, USER]
            named = {"session": "knots", "history": "new"}
            talk = openai.chat.completions
            return list(talk.create(model="sage", messages=said, metadata=named, stream=True))

        first = pool.submit(ask, "Be brief.")
        gate.reached()
        with pytest.raises(APIError):
            ask("Be rude.")
        said = server.get("/api/sessions/knots/branches/main/messages").json()["messages"]
        gate.open()
        assert len(first.result()) > 2
        assert said[0]["text"] == "Be brief."


def test_tools_are_called_by_the_client_and_their_results_are_stored() -> None:
    calls = [ToolCall("weather", {"city": city}, f"call_{city}") for city in ("Oslo", "Rome")]
    with served(["Let me look.", *calls], "Rain, and sun.") as chat:
        asked = chat.ask(user("Weather?"), tools=[WEATHER]).choices[0]
        assert asked.finish_reason == "tool_calls"
        assert [one.function.arguments for one in asked.message.tool_calls] == [
            '{"city":"Oslo"}',
            '{"city":"Rome"}',
        ]
        results = [
            {"role": "tool", "tool_call_id": one.id, "content": said}
            for one, said in zip(asked.message.tool_calls, ("rain", "sun"), strict=True)
        ]
        history = [user("Weather?"), asked.message.model_dump(), *results]
        assert chat.ask(*history, tools=[WEATHER]).choices[0].message.content == "Rain, and sun."
        (session,) = chat.sessions()
        (branch,) = chat.branches(session["id"])
        assert branch["message_count"] == 7
        assert [one["role"] for one in chat.asked()] == ["user", "assistant", "tool", "tool"]


def test_a_streamed_call_has_its_place_and_id() -> None:
    with served([ToolCall("weather", {"city": "Oslo"}, "call_1")]) as chat:
        chunks = list(chat.ask(user("Weather?"), tools=[WEATHER], stream=True))
        (call,) = [one for chunk in chunks for one in chunk.choices[0].delta.tool_calls or ()]
        assert (call.index, call.id, call.function.name) == (0, "call_1", "weather")
        assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_history_in_which_nobody_says_anything_is_refused() -> None:
    with served("The bowline.") as chat, pytest.raises(BadRequestError, match="with content"):
        chat.ask(assistant(" "))


def test_a_call_without_its_result_is_refused() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    with served() as chat:
        with pytest.raises(BadRequestError, match="c1"):
            chat.ask(USER, asked, user("Never mind."))
        with pytest.raises(BadRequestError, match="belongs to no open call"):
            chat.ask(USER, {"role": "tool", "tool_call_id": "c2", "content": "x"})
        assert chat.sessions() == []


def test_an_answer_has_the_form_asked_for_or_is_asked_for_it_in_words() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}}
    form = {"type": "json_schema", "json_schema": {"name": "Knot", "schema": schema}}
    with served('{"name": "bowline"}', supports_output_schema=True) as chat:
        chat.ask(USER, response_format=form)
        held = chat.model.requests[0].output
        assert held is not None
        assert held.schema == schema
        assert chat.asked()[0]["content"] == "Name a knot."
    with served('{"name": "bowline"}', "More.") as chat:
        chat.ask(USER, response_format=form)
        assert chat.model.requests[0].output is None
        assert "interface Knot" in chat.asked()[0]["content"]
        chat.ask(USER, assistant('{"name": "bowline"}'), user("Another."))
        (session,) = chat.sessions()
        assert len(chat.branches(session["id"])) == 1


def test_parameters_reach_the_model() -> None:
    with served("Yes.") as chat:
        chat.ask(
            USER,
            temperature=0.5,
            top_p=0.9,
            max_completion_tokens=7,
            stop=["END"],
            seed=3,
            reasoning_effort="low",
            user="ada",
            n=1,
        )
        assert chat.model.requests[0].params == {
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 7,
            "stop": ["END"],
            "seed": 3,
            "reasoning": "low",
        }


def test_what_a_model_thinks_aloud_is_told_apart() -> None:
    with served(
        Reply((ReplyReasoning("Hm."), ReplyText("The bowline.")), "stop", Usage(1, 2))
    ) as chat:
        message = chat.ask(USER).choices[0].message
        assert message.content == "The bowline."
        assert message.reasoning_content == "Hm."


def test_an_answer_that_was_cut_off_says_so() -> None:
    with served(Reply((ReplyText("The bow"),), "length", Usage(1, 2))) as chat:
        assert chat.ask(USER, max_tokens=2).choices[0].finish_reason == "length"


def test_a_model_can_be_made_to_call_a_tool() -> None:
    named = {"type": "function", "function": {"name": "weather"}}
    call = [ToolCall("weather", {"city": "Oslo"})]
    with served(call, call, "Fine.") as chat:
        answer = chat.ask(USER, tools=[WEATHER], tool_choice="required")
        assert answer.choices[0].finish_reason == "tool_calls"
        chat.ask(USER, tools=[WEATHER], tool_choice=named)
        chat.ask(USER, tools=[WEATHER], tool_choice="auto")
        choices = [one.params.get("tool_choice") for one in chat.model.requests]
        assert choices == ["required", ["weather"], None]


def test_nothing_is_kept_of_what_is_not_to_be_stored() -> None:
    with served("The bowline.") as chat:
        assert chat.ask(USER, store=False).choices[0].message.content == "The bowline."
        assert chat.sessions() == []


def test_what_is_not_done_here_is_refused_by_name() -> None:
    cases: list[tuple[dict[str, Any], str | None]] = [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"logit_bias": {"50256": -100}}, "logit_bias"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "sun"}}}, "tool_choice"),
        ({"tool_choice": {"type": "mcp"}, "tools": [WEATHER]}, "tool_choice.type"),
        ({"temperature": "hot"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": [{"type": "function", "function": {"name": "no good"}}]}, "tools[0]"),
        ({"metadata": {"history": "some", "session": "x"}}, "metadata.history"),
        ({"metadata": {"branch": "main"}}, "metadata.session"),
    ]
    with served() as chat:
        for more, param in cases:
            with pytest.raises(BadRequestError) as caught:
                chat.ask(USER, **more)
            assert caught.value.param == param, more
        for message in ({"role": "wizard", "content": "x"}, {"role": "user", "content": 7}):
            with pytest.raises(BadRequestError) as caught:
                chat.ask(message)
            assert (caught.value.param or "").startswith("messages[0]")
        picture = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
        with pytest.raises(BadRequestError, match="http"):
            chat.ask({"role": "user", "content": [picture]})
        assert chat.sessions() == []
        assert chat.model.requests == []


def test_models_are_listed_and_an_unknown_one_is_not_found() -> None:
    with served() as chat:
        assert [one.id for one in chat.openai.models.list()] == ["sage"]
        assert chat.openai.models.retrieve("sage").object == "model"
        with pytest.raises(NotFoundError) as caught:
            chat.openai.chat.completions.create(model="gpt-9", messages=[USER])
        assert caught.value.code == "model_not_found"
        assert caught.value.param == "model"


def test_a_model_that_fails_is_told_with_its_status() -> None:
    errors = [ModelError("Slow down.", kind="rate_limit", retry_after=3), ModelError("Down.")]
    with served(
        *errors, [ReplyText("The bow"), ModelError("Cut.", kind="network")], "Yes."
    ) as chat:
        with pytest.raises(RateLimitError) as caught:
            chat.ask(USER)
        assert caught.value.response.headers["retry-after"] == "3"
        with pytest.raises(APIStatusError) as failed:
            chat.ask(USER)
        assert failed.value.status_code == 502
        with pytest.raises(APIError, match=r"Cut\."):
            list(chat.ask(USER, stream=True))
        assert chat.ask(USER).choices[0].message.content == "Yes."


def test_a_request_that_is_sent_twice_is_answered_once() -> None:
    with served("The bowline.", "The sheet bend.") as chat:
        first = chat.ask(USER, extra_headers={"Idempotency-Key": "k1"})
        again = chat.ask(USER, extra_headers={"Idempotency-Key": "k1"})
        assert again.id == first.id
        assert again.choices == first.choices
        with pytest.raises(APIStatusError) as caught:
            chat.ask(USER, temperature=1, extra_headers={"Idempotency-Key": "k1"})
        assert caught.value.status_code == 422
        chunks = list(chat.ask(user("2"), stream=True, extra_headers={"Idempotency-Key": "k2"}))
        same = list(chat.ask(user("2"), stream=True, extra_headers={"Idempotency-Key": "k2"}))
        said = ["".join(c.choices[0].delta.content or "" for c in one) for one in (chunks, same)]
        assert said == ["The sheet bend."] * 2
        assert len(chat.model.requests) == 2


def test_a_key_is_for_one_request_wherever_that_belongs() -> None:
    with served("The bowline.", "The sheet bend.", *["Hi."] * 5 * MAX_BRANCHES) as chat:
        key = {"Idempotency-Key": "k1"}
        first = chat.ask(USER, extra_headers=key)
        for other in (
            {"messages": [user("Another.")], "extra_headers": key},
            {"messages": [USER], "extra_headers": {**key, "X-Sennit-Session": "knots"}},
            {"messages": [USER], "extra_headers": key, "metadata": {"session": "knots"}},
        ):
            with pytest.raises(APIStatusError) as caught:
                chat.openai.chat.completions.create(model="sage", **other)
            assert caught.value.status_code == 422
        for number in range(5 * MAX_BRANCHES):  # more that begin alike than are looked through
            chat.ask(USER, extra_headers={"Idempotency-Key": f"other {number}"})
        assert chat.ask(USER, extra_headers=key).id == first.id


def test_a_request_that_another_server_answers_is_waited_for(tmp_path: Path) -> None:
    gate, other = Gate(), Talker("sage")
    with (
        serving(tmp_path / "s.db", models=[Talker("sage", gate)]) as one,
        serving(tmp_path / "s.db", models=[other]) as two,
        client(one) as here,
        client(two) as there,
        ThreadPoolExecutor(2) as pool,
    ):

        def ask(openai: Any) -> str:
            body = {"model": "sage", "messages": [USER], "stream": True}
            chunks = openai.chat.completions.create(**body, extra_headers={"Idempotency-Key": "k"})
            return "".join(one.choices[0].delta.content or "" for one in chunks)

        first = pool.submit(ask, here)
        gate.reached()
        again = pool.submit(ask, there)
        wait([again], timeout=1)  # it has nothing to tell before the gate opens
        gate.open()
        assert again.result().strip() == first.result().strip() == "You said: Name a knot."
        assert other.asked == 0


def test_a_request_that_failed_is_answered_where_it_was_said_however_often_it_is_sent() -> None:
    failure = ModelError("Busy.", kind="overloaded")
    with served(failure, "The sheet bend.", "The bowline.") as chat:

        def ask(said: str) -> str:
            headers = {"Idempotency-Key": said, "X-Sennit-Session": "knots"}
            return chat.ask(user(said), extra_headers=headers).choices[0].message.content

        with pytest.raises(APIStatusError):
            ask("First?")
        assert ask("Second?") == "The sheet bend."
        assert [ask("First?"), ask("Second?"), ask("First?")] == [
            "The bowline.",
            "The sheet bend.",
            "The bowline.",
        ]
        assert [one["content"] for one in chat.asked()] == ["First?"]


def test_an_answer_that_was_cut_off_is_given_whole_when_it_is_asked_for_again() -> None:
    long = "Over, under, through. " * 400
    with served(long, "The bowline.", "Yes.", chunk=20, delay=0.002) as chat:
        named = {"Idempotency-Key": "k", "X-Sennit-Session": "knots"}
        stream = chat.ask(USER, stream=True, extra_headers=named)
        for _ in range(3):
            next(stream)
        stream.close()
        for _ in range(2):
            chunks = list(chat.ask(USER, stream=True, extra_headers=named))
            said = "".join(one.choices[0].delta.content or "" for one in chunks)
            assert said == "The bowline."
        assert chat.said("knots") == [USER["content"], "The bowline."]
        assert len(chat.model.requests) == 2


@pytest.mark.slow
def test_an_answer_that_a_crash_cut_off_is_given_whole_by_the_next_server(tmp_path: Path) -> None:
    def ask(server: Running) -> Any:
        body = {"model": "talker", "messages": [USER], "stream": True}
        return client(server).chat.completions.create(
            **body, extra_headers={"Idempotency-Key": "k"}
        )

    with served_apart(tmp_path / "s.db", 5) as server:
        stream = ask(server)
        while not next(stream).choices[0].delta.content:
            pass
        server.end(SIGKILL)
    with served_apart(tmp_path / "s.db") as server:
        said = ["".join(c.choices[0].delta.content or "" for c in ask(server)) for _ in range(2)]
        assert [one.strip() for one in said] == ["You said: Name a knot."] * 2


def test_two_at_once_with_one_key_are_answered_once() -> None:
    with served("The bowline.", delay=0.05) as chat, ThreadPoolExecutor(4) as pool:
        headers = {"Idempotency-Key": "k1"}
        asked = [pool.submit(chat.ask, USER, extra_headers=headers) for _ in range(4)]
        assert len({one.result().id for one in asked}) == 1
        assert len(chat.model.requests) == 1


def test_many_who_continue_one_history_at_once_each_get_their_own_branch() -> None:
    replies = [f"Answer {number}." for number in range(9)]
    with served("The bowline.", *replies, delay=0.02) as chat, ThreadPoolExecutor(8) as pool:
        chat.ask(USER)
        history = [USER, assistant("The bowline.")]
        for one in [pool.submit(chat.ask, *history, user(f"{n}?")) for n in range(8)]:
            one.result()
        (session,) = chat.sessions()
        branches = chat.branches(session["id"])
        assert [one["message_count"] for one in branches] == [4] * 8
        assert all(len(one.messages) == 3 for one in chat.model.requests[1:])


def test_whoever_goes_away_stops_the_model_and_keeps_what_was_said() -> None:
    asked = Event()

    async def slow(_request: Any) -> Any:
        asked.set()
        await anyio.sleep_forever()

    with served("Over, under, through. " * 400, slow, "Yes.", chunk=20, delay=0.002) as chat:
        stream = chat.ask(USER, stream=True)
        heard = [next(stream).choices[0].delta.content or "" for _ in range(3)]
        stream.close()
        (session,) = chat.sessions()
        said = until(lambda: chat.said(session["id"])[1:])
        assert said[0].startswith("".join(heard))
        assert len(said[0]) < len("Over, under, through. " * 400)
        impatient = HTTPConnection("127.0.0.1", chat.server.port)
        body = json.dumps({"model": "sage", "messages": [user("Hello?")]})
        impatient.request(
            "POST", "/v1/chat/completions", body, {"content-type": "application/json"}
        )
        assert asked.wait(30)
        impatient.close()
        assert chat.ask(user("Hello?")).choices[0].message.content == "Yes."
        assert len(chat.model.requests) == 3


def test_the_embedded_model_answers(tmp_path: Path) -> None:
    with serving(tmp_path / "s.db", models=[sennit.iModel("local")]) as server:
        openai = client(server)
        answer = openai.chat.completions.create(
            model="local", messages=[USER], max_tokens=12, temperature=0.2
        )
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert 0 < answer.usage.completion_tokens <= 12
        pieces = list(
            openai.chat.completions.create(
                model="local", messages=[USER], max_tokens=12, stream=True
            )
        )
        assert "".join(one.choices[0].delta.content or "" for one in pieces)
