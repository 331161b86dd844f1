"""The MCP server, asked by the official client: over stdio in a real program, and over HTTP."""

from __future__ import annotations

import asyncio
import os
import sys
from base64 import b64decode
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client as McpClient
from mcp import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import PromptReference, ResourceTemplateReference

import sennit
from sennit import AudioPart, FilePart, ImagePart, ToolPart
from sennit.messages.media import label
from sennit.server.http.tokens import Scope, add_token, new_token
from sennit.testing import ScriptedModel
from tests.http_server import Gate, Running, all_events, serving

READING = [
    "search",
    "list_sessions",
    "read_session",
    "read_attachment",
    "list_files",
    "read_file",
]
WRITING = ["write_file", "add_message", "fork_session"]


@asynccontextmanager
async def over_http(url: str, token: str | None = None) -> AsyncGenerator[McpClient]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False) as http,
        McpClient(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


@asynccontextmanager
async def over_stdio(store: Path, *options: str) -> AsyncGenerator[McpClient]:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "sennit", "mcp", "--store", str(store), *options],
        env=dict(os.environ),
    )
    async with McpClient(program) as client:
        yield client


async def told(client: McpClient, tool: str, **given: Any) -> Any:
    """What a tool gives; it must not fail."""
    answer: Any = await client.call_tool(tool, given)
    assert not answer.is_error, answer.content
    return answer.structured_content


async def refused(client: McpClient, tool: str, **given: Any) -> str:
    """Why a tool fails; it must."""
    answer: Any = await client.call_tool(tool, given)
    assert answer.is_error
    return answer.content[0].text


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a session and a memory."""
    path = tmp_path / "s.db"
    with sennit.open(path) as client:
        session = client.session("knots")
        session.add_message("user", "Which knot does not slip?")
        session.add_message("assistant", "The bowline does not slip.")
        client.fs.write("viking://user/memories/preferences/rope.md", "Likes hemp rope.")
    return path


@pytest.fixture
def server(store: Path) -> Iterator[Running]:
    with serving(store, models=[ScriptedModel(["The sheet bend."], name="scripted")]) as running:
        yield running


async def work(client: McpClient) -> None:
    """What a model does with it."""
    found = await told(client, "search", query="bowline")
    assert found["found"][0]["abstract"] == "The bowline does not slip."
    memories = await told(client, "search", query="rope", kind="memories")
    assert [one["category"] for one in memories["found"]] == ["preferences"]
    listed = await told(client, "list_sessions", contains="knot")
    assert [one["session"] for one in listed["sessions"]] == ["knots"]
    forked = await told(client, "fork_session", session="knots", at=0, name="other")
    assert forked == {"branch": "other", "forked_from": "main", "messages": 1}
    await told(
        client, "add_message", session="knots", branch="other", role="assistant", text="Yes."
    )
    read = await told(client, "read_session", session="knots", branch="other")
    assert [one["text"] for one in read["messages"]] == ["Which knot does not slip?", "Yes."]
    assert read["branches"] == ["main", "other"]
    uri = "viking://user/memories/entities/ship.md"
    await told(client, "write_file", uri=uri, text="The ship is called Aurora.")
    assert (await told(client, "read_file", uri=uri))["text"] == "The ship is called Aurora."
    entries = await told(client, "list_files", uri="viking://user/memories/entities")
    assert [one["uri"] for one in entries["entries"]] == [uri]


def test_attachments_of_messages_are_read_as_what_they_are(tmp_path: Path) -> None:
    png, wav = b"\x89PNG\r\n\x1a\n" + bytes(2_000), b"RIFF\x2a\0\0\0WAVEfmt " + bytes(2_000)
    parts = [
        ImagePart(png),
        FilePart(b"%PDF-1.7" + bytes(2_000), "a b.pdf"),
        FilePart(b"a,b", "t.csv"),
        AudioPart(wav),
        FilePart("https://example.com/c.pdf"),
    ]
    with sennit.open(tmp_path / "s.db") as client:
        session = client.session("files")
        session.add_message("user", ["Read.", *parts])
        call = ToolPart("draw", {}, "Drawn.", tool_id="c1", files=(ImagePart(png),))
        session.add_message("assistant", [call])

    async def talk(url: str) -> list[Any]:
        async with over_http(url) as client:
            read = await told(client, "read_session", session="files")
            assert [message.get("attachments") for message in read["messages"]] == [
                [label(part) for part in parts],
                None,
                ["[image/png, 2,008 bytes]"],
            ]
            said = await refused(client, "read_attachment", session="files", index=1)
            assert "0 attachments" in said
            said = await refused(client, "read_attachment", session="files", index=9)
            assert "3 messages" in said
            asked = [(0, number) for number in range(5)] + [(2, 0)]
            answers = [
                await client.call_tool(
                    "read_attachment", {"session": "files", "index": index, "number": number}
                )
                for index, number in asked
            ]
            return [answer.content[0] for answer in answers]

    with serving(tmp_path / "s.db") as server:
        image, pdf, csv, audio, address, drawn = asyncio.run(talk(server.url))
    assert (image.type, image.mime_type, b64decode(image.data)) == ("image", "image/png", png)
    assert (drawn.type, b64decode(drawn.data)) == ("image", png)
    assert (audio.type, b64decode(audio.data)) == ("audio", wav)
    assert pdf.resource.mime_type == "application/pdf"
    assert str(pdf.resource.uri) == "attachment:///a%20b.pdf"
    assert b64decode(pdf.resource.blob).startswith(b"%PDF")
    assert csv.resource.text == "a,b"
    assert (address.type, str(address.uri)) == ("resource_link", "https://example.com/c.pdf")


def test_a_program_works_with_it_over_stdio(store: Path) -> None:
    async def talk() -> list[str]:
        async with over_stdio(store) as client:
            await work(client)
            assert client.instructions is not None
            assert "Search first" in client.instructions
            return [one.name for one in (await client.list_tools()).tools]

    assert asyncio.run(talk()) == READING + WRITING
    with sennit.open(store) as client:
        assert client.fs.read("viking://user/memories/entities/ship.md").startswith("The ship")


def test_over_stdio_it_can_be_kept_from_changing_anything(store: Path) -> None:
    async def talk() -> tuple[list[str], str]:
        async with over_stdio(store, "--read-only") as client:
            names = [one.name for one in (await client.list_tools()).tools]
            uri = "viking://user/memories/x.md"
            return names, await refused(client, "write_file", uri=uri, text="x")

    names, why = asyncio.run(talk())
    assert names == READING
    assert why == "'write_file' needs a token with the scope 'write'."


def asked(url: str, work: Callable[[McpClient], Awaitable[Any]], token: str | None = None) -> Any:
    async def talk() -> Any:
        async with over_http(url, token) as client:
            return await work(client)

    return asyncio.run(talk())


def test_a_program_works_with_it_over_http(server: Running) -> None:
    asked(server.url, work)

    async def go_on(client: McpClient) -> Any:
        return await told(client, "continue_session", session="knots", text="Another?")

    answer = asked(server.url, go_on)
    assert answer == {
        "branch": "main",
        "answer": "The sheet bend.",
        "stop_reason": "stable",
        "total": 4,
    }
    page = server.get("/api/sessions/knots/branches/main/messages").json()
    assert [one["text"] for one in page["messages"]][-2:] == ["Another?", "The sheet bend."]


def token_for(path: Path, user: str, *scopes: Scope) -> str:
    secret, line = new_token(user=user, tenant=None, agent=None, scopes=scopes, note="")
    add_token(path, line)
    return secret


def test_a_token_reaches_what_is_its_owners_and_no_more(store: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    mine = token_for(tokens, "default", "read", "write")
    reader = token_for(tokens, "default", "read")
    stranger = token_for(tokens, "mallory", "read", "write")

    async def names(client: McpClient) -> list[str]:
        return [one.name for one in (await client.list_tools()).tools]

    async def pry(client: McpClient) -> list[Any]:
        return [
            (await told(client, "search", query="bowline"))["found"],
            (await told(client, "list_sessions"))["sessions"],
            await refused(client, "read_session", session="knots"),
            await refused(client, "read_file", uri="viking://user/memories/preferences/rope.md"),
        ]

    with serving(store, tokens=tokens) as server:
        assert server.post("/mcp").status_code == 401
        assert asked(server.url, names, mine) == READING + WRITING
        assert asked(server.url, names, reader) == READING
        found, sessions, session, file = asked(server.url, pry, stranger)
    assert (found, sessions) == ([], [])
    assert "There is no session 'knots' of this user" in session
    assert "rope.md" in file
    assert "hemp" not in file


def test_a_page_from_elsewhere_cannot_use_it(server: Running) -> None:
    assert server.post("/mcp", headers={"host": "evil.example"}).status_code == 421
    assert server.post("/mcp", headers={"origin": "http://evil.example"}).status_code == 403


@pytest.mark.parametrize(
    ("tool", "given", "why"),
    [
        ("search", {}, "query: Field required"),
        ("search", {"query": "x", "limit": 1000}, "limit: Input should be less than or"),
        ("search", {"query": "x", "kind": "things"}, "kind: Input should be 'all', 'memories' or"),
        ("search", {"query": "x", "owner": "bob"}, "owner: Extra inputs are not permitted"),
        ("search", {"query": "x", "within": "file:///etc"}, "A URI begins with 'viking://'"),
        ("read_session", {"session": "nothing"}, "There is no session 'nothing' of this user"),
        ("read_session", {"session": "knots", "branch": "x"}, "No branch 'x' in this session"),
        ("fork_session", {"session": "knots", "at": 9}, "Cannot fork branch 'main' there"),
        ("fork_session", {"session": "knots", "name": "main"}, "already a branch named 'main'"),
        ("read_file", {"uri": "viking://user/../../etc/passwd"}, "is not a valid file name"),
        ("read_file", {"uri": "viking://user/memories/x.md"}, "viking://user/memories/x.md"),
        ("write_file", {"uri": "viking://session/knots/x", "text": "x"}, "session"),
        ("write_file", {"uri": "viking://user/memories/x.md", "text": "a\0b"}, "NUL"),
        ("add_message", {"session": "k", "role": "system", "text": "x"}, "role: Input should be"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_told_in_words_that_help(
    one_server: Running, tool: str, given: dict[str, Any], why: str
) -> None:
    async def ask(client: McpClient) -> str:
        return await refused(client, tool, **given)

    assert why in asked(one_server.url, ask)


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server for tests that change nothing."""
    path = tmp_path_factory.mktemp("mcp") / "s.db"
    with sennit.open(path) as client:
        client.session("knots").add_message("user", "Which knot does not slip?")
        long = client.session("long")
        for number in range(30):
            long.add_message("user", f"{number} " + "x" * 5_000)
        client.fs.write("viking://user/long.md", "x" * 60_000)
    with serving(path) as running:
        yield running


def test_long_sessions_and_files_come_in_pieces(one_server: Running) -> None:
    async def read(client: McpClient) -> tuple[list[int], int, str]:
        seen: list[int] = []
        before: int | None = None
        while True:
            page = await told(client, "read_session", session="long", before=before, limit=100)
            assert sum(len(one["text"]) for one in page["messages"]) <= 24_000
            seen = [one["index"] for one in page["messages"]] + seen
            before = page["before"]
            if before is None:
                break
        pieces, text, offset = 0, "", 0
        while offset is not None:
            piece = await told(client, "read_file", uri="viking://user/long.md", offset=offset)
            text, offset, pieces = text + piece["text"], piece.get("next_offset"), pieces + 1
        return seen, pieces, text

    seen, pieces, text = asked(one_server.url, read)
    assert seen == list(range(30))
    assert (pieces, text) == (3, "x" * 60_000)


def test_what_is_no_mcp_is_answered_with_an_error(one_server: Running) -> None:
    assert one_server.get("/mcp").status_code == 405
    assert one_server.get("/mcp").json()["error"]["code"] == "method"
    assert one_server.post("/mcp", {"not": "mcp"}).status_code in (400, 406)
    headers = {
        "accept": "application/json, text/event-stream",
        "content-type": "application/json",
    }
    assert one_server.http.post("/mcp", content=b"{", headers=headers).status_code == 400
    huge = b"[" + b"1," * 5_000_000 + b"1]"
    assert one_server.http.post("/mcp", content=huge, headers=headers).status_code == 413


def test_an_answer_under_way_is_suspended_when_the_server_stops(store: Path) -> None:
    gate, branch = Gate(), "/api/sessions/knots/branches/main"

    async def slow(_request: Any) -> str:
        await gate.pass_through()
        return "Never said."

    async def go_on(client: McpClient) -> str:
        return await refused(client, "continue_session", session="knots", text="Another?")

    with ThreadPoolExecutor(1) as pool:
        with serving(store, models=[ScriptedModel([slow], name="sage")]) as server:
            answer = pool.submit(asked, server.url, go_on)
            gate.reached()
        assert "can be resumed" in answer.result(30)
    with serving(store, models=[ScriptedModel(["The sheet bend."], name="sage")]) as server:
        assert server.get(branch).json()["interrupted"] is True
        events = server.post(f"{branch}/resume").json()["events"]
        all_events(server, events)
        said = server.get(f"{branch}/messages").json()["messages"]
        assert [one["text"] for one in said][-2:] == ["Another?", "The sheet bend."]


def test_a_prompt_quotes_no_message_of_another_session(store: Path) -> None:
    with sennit.open(store) as client:
        client.session("other").add_message("user", "My secret knot is the zeppelin bend.")

    async def go_on(client: McpClient) -> Any:
        return await told(client, "continue_session", session="knots", text="My secret knot?")

    model = ScriptedModel(["The sheet bend."], name="scripted")
    with serving(store, models=[model]) as server:
        asked(server.url, go_on)
    (request,) = model.requests
    assert "The bowline does not slip." in str(request.messages)
    assert "zeppelin" not in str(request.messages)


def test_looking_at_a_session_changes_nothing(server: Running, store: Path) -> None:
    with sennit.open(store) as client:  # over HTTP a session begins with its main branch
        client.session("empty")
        client.session("odd").create_branch("side")

    async def look(client: McpClient) -> tuple[str, Any]:
        why = await refused(client, "read_session", session="empty")
        return why, await told(client, "read_session", session="odd")

    why, odd = asked(server.url, look)
    assert "has no messages yet" in why
    assert odd["branches"] == ["side"]
    assert server.get("/api/sessions/empty").json()["branches"] == []


def test_sessions_are_listed_page_by_page(server: Running) -> None:
    for number in range(3):
        server.post("/api/sessions", {"key": f"page {number}"})

    async def look(client: McpClient) -> list[str]:
        names, before = [], None
        while True:
            given = {} if before is None else {"before": before}
            page = await told(client, "list_sessions", contains="page", limit=2, **given)
            names += [one["session"] for one in page["sessions"]]
            if (before := page["next"]) is None:
                return names

    assert asked(server.url, look) == ["page 2", "page 1", "page 0"]


async def look_at_resources(client: McpClient) -> None:
    """What an assistant that attaches resources does with it."""
    listed = (await client.list_resources()).resources
    by_uri = {str(one.uri): one for one in listed}
    assert by_uri["viking://session/knots"].title == "knots"
    rope = "viking://user/memories/preferences/rope.md"
    assert by_uri[rope].description == "Likes hemp rope."
    session: Any = (await client.read_resource("viking://session/knots")).contents[0]
    said = "user: Which knot does not slip?\n\nassistant: The bowline does not slip."
    assert (session.text, session.mime_type) == (said, "text/plain")
    file: Any = (await client.read_resource(rope)).contents[0]
    assert (file.text, file.mime_type) == ("Likes hemp rope.", "text/markdown")
    templates = (await client.list_resource_templates()).resource_templates
    assert [one.name for one in templates] == ["session", "file"]
    prompts = {one.name: one for one in (await client.list_prompts()).prompts}
    assert [(one.name, one.required) for one in prompts["continue"].arguments or ()] == [
        ("session", True),
        ("branch", False),
    ]
    recalled: Any = await client.get_prompt("recall", {"topic": "bowline"})
    assert "The bowline does not slip." in recalled.messages[0].content.text
    prompt = PromptReference(name="continue")
    names = await client.complete(prompt, {"name": "session", "value": "kn"})
    assert names.completion.values == ["knots"]
    names = await client.complete(prompt, {"name": "branch", "value": "m"}, {"session": "knots"})
    assert names.completion.values == ["main"]
    template = ResourceTemplateReference(uri="viking://session/{session}")
    names = await client.complete(template, {"name": "session", "value": "none"})
    assert names.completion.values == []
    again: Any = await client.get_prompt("continue", {"session": "knots"})
    assert [(one.role, one.content.text) for one in again.messages] == [
        ("user", "Which knot does not slip?"),
        ("assistant", "The bowline does not slip."),
    ]


def test_sessions_and_memories_are_resources_over_stdio(store: Path) -> None:
    async def talk() -> None:
        async with over_stdio(store, "--read-only") as client:
            await look_at_resources(client)

    asyncio.run(talk())


def test_sessions_and_memories_are_resources_over_http(server: Running) -> None:
    async def talk() -> None:
        async with over_http(server.url) as client:
            await look_at_resources(client)

    asyncio.run(talk())


ERRORS: dict[str, tuple[Callable[[McpClient], Awaitable[Any]], int, str]] = {
    "a tool that is not there": (
        lambda client: client.call_tool("erase_all", {}),
        -32602,
        "There is no tool 'erase_all'; available: search, list_sessions",
    ),
    "a session that is not there": (
        lambda client: client.read_resource("viking://session/none"),
        -32002,
        "none",
    ),
    "a file that is not there": (
        lambda client: client.read_resource("viking://user/memories/none.md"),
        -32002,
        "none.md",
    ),
    "a way out of the folders": (
        lambda client: client.read_resource("viking://user/../../etc/passwd"),
        -32602,
        "..",
    ),
    "another scheme": (
        lambda client: client.read_resource("file:///etc/passwd"),
        -32602,
        "viking://",
    ),
    "a prompt that is not there": (
        lambda client: client.get_prompt("dig", {}),
        -32602,
        "There is no prompt 'dig'; available: recall, continue.",
    ),
    "a prompt without its argument": (
        lambda client: client.get_prompt("recall", {}),
        -32602,
        "needs the argument 'topic'",
    ),
    "a prompt with another argument": (
        lambda client: client.get_prompt("recall", {"topic": "x", "dig": "y"}),
        -32602,
        "has no argument 'dig'",
    ),
    "a page that is none": (
        lambda client: client.list_resources(cursor="x"),
        -32602,
        "previous page",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_is_not_there_is_an_error_of_the_protocol(one_server: Running, case: str) -> None:
    ask, code, reason = ERRORS[case]

    async def talk() -> MCPError:
        async with over_http(one_server.url) as client:
            with pytest.raises(MCPError) as caught:
                await ask(client)
            return caught.value

    error = asyncio.run(talk())
    assert error.code == code
    assert reason in str(error)


def test_resources_of_another_user_are_not_there(store: Path, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    plain, token = new_token(user="bob", scopes=["read"])
    add_token(tokens, token)
    blind, token = new_token(user="bob", scopes=["write"])
    add_token(tokens, token)

    async def talk(url: str) -> None:
        async with over_http(url, plain) as client:
            assert (await client.list_resources()).resources == []
            with pytest.raises(MCPError):
                await client.read_resource("viking://session/knots")
            with pytest.raises(MCPError):
                await client.get_prompt("continue", {"session": "knots"})
        async with over_http(url, blind) as client:
            assert (await client.list_prompts()).prompts == []
            typed = {"name": "session", "value": ""}
            names = await client.complete(PromptReference(name="continue"), typed)
            assert names.completion.values == []
            with pytest.raises(MCPError, match="scope 'read'"):
                await client.get_prompt("recall", {"topic": "x"})

    with serving(store, tokens=tokens) as server:
        asyncio.run(talk(server.url))


def test_sessions_are_listed_as_resources_page_by_page(tmp_path: Path) -> None:
    path = tmp_path / "many.db"
    with sennit.open(path) as client:
        for number in range(205):
            client.session(f"s{number:03}").add_message("user", f"Question {number}")

    async def talk() -> list[str]:
        async with over_stdio(path) as client:
            uris: list[str] = []
            page = await client.list_resources()
            uris += [str(one.uri) for one in page.resources]
            while page.next_cursor is not None:
                page = await client.list_resources(cursor=page.next_cursor)
                uris += [str(one.uri) for one in page.resources]
            return uris

    uris = asyncio.run(talk())
    assert len(uris) == len(set(uris)) == 205
