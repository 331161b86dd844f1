"""/v1/responses over a WebSocket: by the official clients, and event by event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from socket import create_connection
from typing import Any

import agents
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.connection import Connection

from sennit import ModelError
from sennit.server.http.tokens import add_token, new_token, revoke_token
from sennit.server.settings import Limits
from sennit.testing import ToolCall
from tests.http_server import Gate, Running, Talker, serving, texts
from tests.openai_client import Chat, served


def weather(city: str) -> str:
    """The forecast for a city."""
    return f"rain in {city}"


@contextmanager
def connected(server: Running, **headers: str) -> Generator[Socket]:
    url = f"ws://127.0.0.1:{server.port}/v1/responses"
    with connect(url, additional_headers=headers, open_timeout=30) as connection:
        yield Socket(connection)


class Socket:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def send(self, **event: Any) -> None:
        self.connection.send(json.dumps({"type": "response.create", "model": "sage", **event}))

    def receive(self) -> dict[str, Any]:
        return json.loads(self.connection.recv(30))

    def events(self) -> Iterator[dict[str, Any]]:
        """The events until a response ends, or could not begin."""
        while True:
            event = self.receive()
            yield event
            if event["type"] in ("error", "response.completed", "response.failed"):
                return

    def ask(self, **event: Any) -> dict[str, Any]:
        """The last event of a response."""
        self.send(**event)
        return list(self.events())[-1]

    def answer(self, **event: Any) -> tuple[str, str]:
        """The id and the text of a response."""
        last = self.ask(**event)
        assert last["type"] == "response.completed", last
        response = last["response"]
        text = "".join(item["content"][0]["text"] for item in response["output"])
        return response["id"], text


def test_the_official_client_continues_a_response_on_its_connection() -> None:
    with served("The bowline.", "It holds.", chunk=4) as chat:
        with chat.openai.responses.connect() as connection:
            response_id = None
            for text, expected in (("Name a knot.", "The bowline."), ("Why?", "It holds.")):
                more = {} if response_id is None else {"previous_response_id": response_id}
                connection.response.create(model="sage", input=text, **more)
                streamed = ""
                for event in connection:
                    if event.type == "response.output_text.delta":
                        streamed += event.delta
                    if event.type == "response.completed":
                        response_id = event.response.id
                        break
                assert streamed == expected
        (session,) = chat.sessions()
        assert chat.said(session["id"]) == ["Name a knot.", "The bowline.", "Why?", "It holds."]
        assert chat.openai.responses.retrieve(response_id).output_text == "It holds."


def test_the_agents_sdk_runs_its_tools_over_a_websocket() -> None:
    async def talk(chat: Chat) -> str:
        url = f"{chat.server.url}/v1"
        async with agents.responses_websocket_session(
            api_key="none", base_url=url, websocket_base_url=url.replace("http", "ws")
        ) as session:
            tools: list[Any] = [agents.function_tool(weather)]
            agent = agents.Agent(name="Forecaster", model="sage", tools=tools)
            agents.set_tracing_disabled(True)
            result = session.run_streamed(agent, "Weather in Oslo?")
            async for _ in result.stream_events():
                pass
            return result.final_output

    with served([ToolCall("weather", {"city": "Oslo"}, "call_1")], "It rains.") as chat:
        assert asyncio.run(talk(chat)) == "It rains."
        (session,) = chat.sessions()
        assert len(chat.said(session["id"])) == 4


def test_a_response_that_is_not_stored_goes_on_on_its_connection() -> None:
    with served("The bowline.", "It holds.", "Ropes.", ModelError("no", kind="overloaded")) as chat:
        with connected(chat.server) as socket:
            first, _ = socket.answer(input="Name a knot.", store=False)
            second, text = socket.answer(input="Why?", store=False, previous_response_id=first)
            assert text == "It holds."
            shown = [one["content"] for one in chat.asked()]
            assert shown == ["Name a knot.", "The bowline.", "Why?"]
            refused = socket.ask(input="And?", previous_response_id=second)
            assert (refused["status"], refused["error"]["param"]) == (400, "store")
            assert socket.answer(input="And?", store=False, previous_response_id=second)[1]
            failed = socket.ask(input="More?", store=False, previous_response_id=second)
            assert failed["type"] == "response.failed"
            gone = {"store": False, "previous_response_id": failed["response"]["id"]}
            assert socket.ask(input="x", **gone)["error"]["code"] == "previous_response_not_found"
        with connected(chat.server) as socket:
            unknown = socket.ask(input="Why?", store=False, previous_response_id=first)
            assert unknown["error"]["code"] == "previous_response_not_found"
        assert chat.sessions() == []


def test_an_input_sent_ahead_is_put_before_the_next_one() -> None:
    with served("It rains.", "Yes.") as chat, connected(chat.server) as socket:
        ahead = socket.ask(input="It is November.", generate=False)
        assert (ahead["type"], ahead["response"]["output"]) == ("response.completed", [])
        assert chat.model.requests == []
        name = ahead["response"]["id"]
        more = socket.ask(
            input=[{"role": "user", "content": "In Oslo."}],
            generate=False,
            previous_response_id=name,
        )
        first, text = socket.answer(
            input="Weather?", previous_response_id=more["response"]["id"], instructions="Be brief."
        )
        assert text == "It rains."
        shown = [one["content"] for one in chat.asked()]
        assert shown == ["Be brief.", "It is November.", "In Oslo.", "Weather?"]
        again = socket.ask(input="Really?", generate=False, previous_response_id=first)
        socket.answer(input="Tell me.", previous_response_id=again["response"]["id"])
        assert [one["content"] for one in chat.asked()][-3:] == ["It rains.", "Really?", "Tell me."]
        assert socket.ask(model="none", input="x", generate=False)["status"] == 404


def test_responses_of_one_stream_id_follow_each_other_and_those_of_others_do_not_wait() -> None:
    gate = Gate()
    models = [Talker("sage", gate), Talker("quick")]
    with serving(models=models) as server, connected(server) as socket:
        socket.send(input="slow", stream_id="a")
        gate.reached()
        socket.send(input="after", stream_id="a")
        socket.send(input="at once", stream_id="b", model="quick")
        events = list(socket.events())
        while events[-1]["stream_id"] != "b":
            events += socket.events()
        ended = [one for one in events if one["type"] == "response.completed"]
        assert [one["stream_id"] for one in ended] == ["b"]
        gate.open()
        rest = [*socket.events(), *socket.events()]
        starts = [
            (one["type"], one["stream_id"]) for one in rest if one["type"] != "response.in_progress"
        ]
        assert starts[-1] == ("response.completed", "a")
        created = [n for n, one in enumerate(starts) if one[0] == "response.created"]
        completed = [n for n, one in enumerate(starts) if one[0] == "response.completed"]
        assert completed[0] < created[-1]


def test_a_client_that_leaves_stops_its_response_and_the_text_so_far_stays() -> None:
    gate = Gate()
    with serving(models=[Talker("sage", gate)]) as server:
        with connected(server) as socket:
            socket.send(input="Tie it")
            gate.reached()
        (session,) = server.get("/api/sessions").json()["sessions"]
        branch = f"/api/sessions/{session['id']}/branches/main"
        while server.get(f"{branch}/runs/current").status_code == 200:
            pass
        said = texts(server, branch)
        assert said[0] == "Tie it"
        assert "it" not in said[1:]


WRONG = {
    "no JSON": ("{", "malformed"),
    "no object": ("[1]", "invalid"),
    "another type": ('{"type": "session.update"}', "invalid_value"),
    "no type": ('{"model": "sage"}', "invalid_value"),
    "no model": ('{"type": "response.create", "input": "x"}', "invalid"),
    "a number as stream_id": ('{"type": "response.create", "stream_id": 1}', "invalid_value"),
    "a stream_id of 65 characters": (
        json.dumps({"type": "response.create", "stream_id": "x" * 65}),
        "invalid_value",
    ),
    "in the background": ('{"type": "response.create", "background": true}', "invalid_value"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_event_is_an_error_and_the_connection_goes_on(wrong: str) -> None:
    event, code = WRONG[wrong]
    with serving(models=[Talker("sage")]) as server, connected(server) as socket:
        socket.connection.send(event)
        error = socket.receive()
        assert (error["type"], error["status"], error["error"]["code"]) == ("error", 400, code)
        assert "stream_id" not in error
        assert socket.answer(input="again")[1] == "You said: again "


def test_an_event_beyond_the_size_of_a_body_closes_the_connection() -> None:
    with serving(models=[Talker("sage")], limits=Limits(body_bytes=8_000)) as server:
        with connected(server) as socket, pytest.raises(ConnectionClosed) as closed:
            socket.ask(input="x" * 9_000)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_an_event_of_a_token_may_have_the_size_of_its_body_and_not_that_of_the_local_user(
    tmp_path: Path,
) -> None:
    text, token = new_token(user="ann", scopes=("run",))
    add_token(tmp_path / "tokens.json", token)
    with serving(models=[Talker("sage")], tokens=tmp_path / "tokens.json") as server:
        bearer = {"Authorization": f"Bearer {text}"}
        with connected(server, **bearer) as socket, pytest.raises(ConnectionClosed) as closed:
            socket.ask(input="x" * 1_100_000)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


def test_steering_is_refused_and_the_input_given_back() -> None:
    with serving(models=[Talker("sage")]) as server, connected(server) as socket:
        event = {"type": "response.steer", "previous_response_id": "resp_1", "input": "Left!"}
        socket.connection.send(json.dumps(event))
        failed = socket.receive()
        assert failed["type"] == "response.steer.failed"
        assert failed["error"]["code"] == "steering_not_supported"
        assert failed["steer"] == {"previous_response_id": "resp_1", "input": "Left!"}


def status_of(server: Running, **headers: str) -> int:
    with pytest.raises(InvalidStatus) as refused, connected(server, **headers):
        pass
    return refused.value.response.status_code


def test_a_connection_needs_a_token_and_ends_with_it(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    text, token = new_token(user="ann", scopes=("run",))
    add_token(tokens, token)
    limits = Limits(heartbeat=0.05, token_streams=2)
    with serving(models=[Talker("sage")], tokens=tokens, limits=limits) as server:
        assert status_of(server) == 401
        bearer = {"Authorization": f"Bearer {text}"}
        with connected(server, **bearer) as socket:
            assert socket.answer(input="Hello")[1] == "You said: Hello "
            with connected(server, **bearer) as other:
                assert status_of(server, **bearer) == 429
                busy = other.ask(input="a third stream")
                assert (busy["status"], busy["error"]["type"]) == (429, "rate_limit_error")
                assert busy["error"]["headers"]["retry-after"] == "2"
            revoke_token(tokens, token.id)
            with pytest.raises(ConnectionClosed) as closed:
                socket.receive()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008


def test_a_page_of_another_site_and_another_path_get_no_connection() -> None:
    with serving(models=[Talker("sage")]) as server:
        assert status_of(server, Origin="https://evil.example") == 403
        url = f"ws://127.0.0.1:{server.port}/v1/chat/completions"
        with pytest.raises(InvalidStatus) as refused, connect(url):
            pass
        assert refused.value.response.status_code == 404


def test_an_idle_connection_outlives_the_time_for_the_head_of_a_request() -> None:
    with serving(models=[Talker("sage")], limits=Limits(head_seconds=0.1)) as server:
        address = ("127.0.0.1", server.port)
        with connected(server) as socket, create_connection(address, timeout=30) as silent:
            assert silent.recv(1) == b""  # closed by the server, whose time for a head is over
            assert socket.answer(input="Hello")[1] == "You said: Hello "
