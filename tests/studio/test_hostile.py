"""Hostile texts in every place that shows text: none is executed, and none reaches out."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

import pytest
from playwright.sync_api import expect

import sennit
from sennit import (
    AssistantResponseContent,
    Client,
    InstructionContent,
    Message,
    ModelError,
    TextPart,
    ToolPart,
)
from sennit.testing import ScriptedModel, ToolCall
from tests.http_server import Running, serving
from tests.studio.conftest import OpenStudio
from tests.studio.hostile import HOSTILE, RAW

TOGETHER = "\n\n".join(HOSTILE)
NAMES = [text for text in RAW if text.isprintable()]  # a service can have no other


_OPEN_ALL = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
_SCROLL = """async (by) => {
  document.querySelector('.list').scrollTop += by;
  for (let count = 0; count < 3; count += 1) await new Promise(requestAnimationFrame);
}"""
# Which rows are there, and whether the last of them is in sight.
_ROWS = """() => {
  const box = document.querySelector('.list');
  const rows = [...document.querySelectorAll('.row')].map((row) => Number(row.dataset.index));
  return [rows, box.scrollTop + box.clientHeight > box.scrollHeight - 2];
}"""


def broken(text: str) -> str:
    """Go wrong in so many words."""
    raise RuntimeError(text)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("hostile") / "s.db"
    with sennit.open(path, durability="normal") as client:
        _fill(client)
    # One model says all of them piece by piece, one has all of them go wrong in a tool; the others
    # fail with a hostile text, under a hostile name.
    calls = [ToolCall("broken", {"text": text}) for text in HOSTILE]
    models = [
        ScriptedModel([TOGETHER, calls, "Done."], name="speaker", chunk=11),
        *(ScriptedModel([ModelError(text, kind="bad_request")], name=text) for text in NAMES),
    ]
    with serving(path, models=models, tools=[broken]) as running:
        yield running


def _fill(client: Client) -> None:
    for text in RAW:
        client.session(text).create_branch("main")
    session = client.session("messages")
    said = session.create_branch("main")
    for text in HOSTILE:
        message = Message(InstructionContent(instruction=text), sender=text)
        session.add_message(message, branches=said)
        session.add_message("assistant", text, branches=said)
    session = client.session("tools")
    used = session.create_branch("main")
    for text in HOSTILE:
        good = ToolPart(text, {text: text, "deep": [text]}, output={text: text})
        bad = ToolPart("bad", {"q": text}, error=text)
        session.add_message("assistant", [TextPart("x"), good, bad], branches=used)
    session = client.session("used")
    used = session.create_branch("main")
    for text in HOSTILE:
        counts = {"input_tokens": 1, "output_tokens": 1, "cost": 0.01}
        notes = {"usage": counts, "model": text}
        session.add_message(Message(AssistantResponseContent(text), metadata=notes), branches=used)
    session = client.session("branches")
    main = session.create_branch("main")
    session.add_message("user", "x", branches=main)
    for text in RAW:
        fork = main.fork(name=text)
        session.add_message("user", text, branches=fork)
    for number, text in enumerate(HOSTILE):
        client.fs.write(f"viking://user/memories/preferences/{number}.md", text)


def session_id(server: Running, key: str) -> str:
    found = server.get("/api/sessions", params={"contains": key}).json()["sessions"]
    return next(one["id"] for one in found if one["key"] == key)


def test_names_of_sessions(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    titles = studio.page.locator(".session .title")
    expect(titles).to_have_count(40)  # a page of them
    studio.page.get_by_role("button", name="More").click()
    there = server.get("/api/sessions", params={"limit": 200}).json()["sessions"]
    assert len(there) > len(RAW)
    expect(titles).to_have_count(len(there))
    shown = titles.all_inner_texts()
    assert RAW[0] in shown
    for text in RAW[::7]:
        studio.go(f"#/s/{session_id(server, text)}")
        expect(studio.page.locator(".session-head h1")).to_have_attribute("title", text)


@pytest.mark.parametrize("key", ["messages", "tools"])
def test_messages_and_tools(server: Running, open_studio: OpenStudio, key: str) -> None:
    studio = open_studio(server, f"#/s/{session_id(server, key)}", height=6000)
    last = 2 * len(HOSTILE) if key == "messages" else 5 * len(HOSTILE)
    seen: set[int] = set()
    studio.page.locator(".row").first.wait_for()
    by, at_end = -1_000_000, False
    while not at_end:
        studio.page.evaluate(_SCROLL, by)
        expect(studio.page.locator(".message.loading")).to_have_count(0)
        studio.page.evaluate(_OPEN_ALL)
        rows, at_end = studio.page.evaluate(_ROWS)
        seen.update(rows)
        by = 3000
    assert seen == set(range(last))


def test_names_of_branches(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server, f"#/s/{session_id(server, 'branches')}/main/tree")
    expect(studio.page.locator("svg a.head")).to_have_count(len(RAW) + 1)
    options = studio.page.locator("#branch option").all_text_contents()
    assert sorted(options) == sorted(["main", *RAW])
    for name in RAW[::11]:
        studio.page.locator("#branch").select_option(label=name)
        studio.page.locator("#tab-compare").click()
        expect(studio.page.locator(".column")).to_have_count(2)
        studio.page.locator("#tab-chat").click()
        expect(studio.page.locator(".from")).to_be_visible()


def test_names_that_are_given(server: Running, open_studio: OpenStudio) -> None:
    session = server.post("/api/sessions", {"key": "named"}).json()["id"]
    for name in ("other", NAMES[0]):
        server.post(f"/api/sessions/{session}/branches", {"name": name})
    studio = open_studio(server, f"#/s/{session}/other")
    title, branch = "named", "other"
    for name in NAMES[1::16]:
        studio.rename("Name this session", name, was=title)
        expect(studio.page.locator(".session-head h1")).to_have_attribute("title", name.strip())
        studio.rename("Rename this branch", name, was=branch)
        expect(studio.page.locator("#branch option:checked")).to_have_text(name)
        title = branch = name.strip()
    studio.rename("Rename this branch", NAMES[0], was=branch)  # which is taken
    studio.expected_refusals = 1
    expect(studio.page.locator(".toast.failed").last).to_contain_text(NAMES[0][:20])


def test_addresses_made_by_others(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server, locale="en-GB")  # in a tab of its own: most of it is refused
    studio.expected_refusals = 1000
    for text in RAW[::5]:
        studio.page.evaluate(
            "text => { location.hash = `#/s/${encodeURIComponent(text)}/x?m=${text}`; }", text
        )
        studio.page.evaluate("text => { location.hash = `#/${text}`; }", text)
        studio.page.evaluate(
            "text => { location.hash = `#/memory?uri=${encodeURIComponent(text)}`; }", text
        )
    expect(studio.page.locator(".memory-item .failed")).to_be_visible()


def test_memories(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server, "#/memory")
    entries = studio.page.locator(".memory-entry")
    more = studio.page.locator(".memory-list").get_by_role("button", name="More")
    expect(more).to_be_visible()
    more.click()
    expect(entries).to_have_count(len(HOSTILE))
    for number in range(0, len(HOSTILE), 9):
        entries.nth(number).click()
        expect(studio.page.locator(".item-text")).not_to_be_empty()


def test_what_is_found(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    for words in ("window.pwned=1", "<script>", "evil.example"):
        with studio.page.expect_response(
            lambda one, asked=words: f"?{urlencode({'q': asked})}" in one.url
        ):
            studio.page.locator("#search").fill(words)
        expect(studio.page.locator(".session.found").first).to_be_visible()


def test_answers_as_they_are_said_and_tools_that_go_wrong(
    server: Running, open_studio: OpenStudio
) -> None:
    studio = open_studio(server)
    studio.begin("streamed")
    studio.page.get_by_label("Model").select_option("speaker")
    studio.say(TOGETHER)
    studio.hears(HOSTILE[0])
    studio.do(HOSTILE[0], "Show the prompt")
    expect(studio.page.locator(".part")).not_to_have_count(0)
    studio.page.evaluate(_OPEN_ALL)
    studio.page.keyboard.press("Escape")
    studio.say("Now call")
    studio.hears("Done.")
    expect(studio.page.locator(".card.outcome.failed").last).to_be_visible()


def test_names_of_models_and_their_errors(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    studio.begin("failing")
    options = studio.page.get_by_label("Model").locator("option")
    expect(options).to_have_count(1 + len(NAMES))
    assert options.all_text_contents() == ["speaker", *NAMES]
    assert len(NAMES) >= 60
    for nth, name in enumerate(NAMES[::9], 1):
        studio.page.get_by_label("Model").select_option(name)
        studio.say("Hello")
        expect(studio.message("Hello")).to_have_count(nth)
        expect(studio.page.locator(".notice.error")).to_contain_text(name.split()[0])
        studio.idle()
    studio.go("#/usage")
    expect(studio.page.locator(".tiles")).to_be_visible()
