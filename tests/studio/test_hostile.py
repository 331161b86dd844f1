"""Hostile texts in every place that shows text: none is executed, and none reaches out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import sennit
from sennit import TextPart, ToolPart
from tests.serving import Running, serving
from tests.studio.conftest import OpenStudio
from tests.studio.hostile import HOSTILE, RAW


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("hostile") / "s.db"
    with sennit.open(path, durability="normal") as client:
        for text in RAW:
            client.session(text).create_branch("main")
        session = client.session("messages")
        said = session.create_branch("main")
        for text in HOSTILE:
            session.add_message("user", text, branches=said)
            session.add_message("assistant", text, branches=said)
        session = client.session("tools")
        used = session.create_branch("main")
        for text in HOSTILE:
            good = ToolPart(text, {text: text, "deep": [text]}, output={text: text})
            bad = ToolPart("bad", {"q": text}, error=text)
            session.add_message("assistant", [TextPart("x"), good, bad], branches=used)
        session = client.session("branches")
        main = session.create_branch("main")
        session.add_message("user", "x", branches=main)
        for text in RAW:
            fork = main.fork(name=text)
            session.add_message("user", text, branches=fork)
    with serving(path) as running:
        yield running


def session_id(server: Running, key: str) -> str:
    found = server.get("/api/sessions", params={"contains": key}).json()["sessions"]
    return next(one["id"] for one in found if one["key"] == key)


def test_names_of_sessions(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    more = studio.page.get_by_role("button", name="More")
    while more.count():
        more.click()
        studio.page.wait_for_load_state("networkidle")
    shown = studio.page.locator(".session .title").all_inner_texts()
    assert len(shown) == len(RAW) + 3
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
    box = studio.page.locator(".list")
    box.evaluate("box => { box.scrollTop = 0; }")
    while True:
        expect(studio.page.locator(".message.loading")).to_have_count(0)
        studio.page.evaluate(
            "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
        )
        rows = "rows => rows.map((row) => Number(row.dataset.index))"
        seen.update(studio.page.eval_on_selector_all(".row", rows))
        before = box.evaluate("box => box.scrollTop")
        box.evaluate("box => { box.scrollTop += box.clientHeight; }")
        if box.evaluate("box => box.scrollTop") == before:
            break
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


def test_addresses_made_by_others(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    studio.expected_refusals = 1000
    for text in RAW[::5]:
        studio.page.evaluate(
            "text => { location.hash = `#/s/${encodeURIComponent(text)}/x?m=${text}`; }", text
        )
        studio.page.evaluate("text => { location.hash = `#/${text}`; }", text)
        studio.page.evaluate(
            "text => { location.hash = `#/memory?uri=${encodeURIComponent(text)}`; }", text
        )
    studio.page.wait_for_load_state("networkidle")
