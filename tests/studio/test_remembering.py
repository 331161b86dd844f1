"""Memory in a browser: committed, found with its words, taken back; search, usage, export."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from sennit.testing import ScriptedModel
from tests.http_server import Running, all_events, run, serving
from tests.studio.conftest import OpenStudio

SAID = "My name is Ann Lee. I prefer green tea to coffee."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    model = ScriptedModel(["Noted."] * 30)
    with serving(tmp_path_factory.mktemp("remembering") / "s.db", models=[model]) as running:
        yield running


@pytest.fixture(scope="module")
def session(server: Running) -> str:
    """The path of a session in which something was said and committed."""
    return told(server, "hello", SAID)


def told(server: Running, key: str, said: str) -> str:
    """Say something in a new session, and commit it."""
    session = f"/api/sessions/{server.post('/api/sessions', {'key': key}).json()['id']}"
    all_events(server, run(server, f"{session}/branches/main", said)["events"])
    assert server.post(f"{session}/commit").json()["memories_extracted"] > 0
    return session


def test_what_was_said_is_remembered_and_leads_back_to_its_words(
    server: Running, open_studio: OpenStudio
) -> None:
    studio = open_studio(server)
    studio.begin("boats")
    studio.say("I prefer slow boats to fast cars.")
    studio.hears("Noted.")
    studio.page.locator("#remember").click()
    studio.page.locator("#memory-search").fill("boats")
    entry = studio.page.locator(".memory-entry", has_text="slow boats").first
    entry.click()
    item = studio.page.get_by_role("article", name="Memory")
    expect(item.locator(".evidence blockquote").first).to_contain_text("I prefer slow boats")
    expect(item.locator(".history li")).not_to_have_count(0)
    expect(item.locator(".decisions li")).not_to_have_count(0)
    studio.shot("item")
    item.get_by_role("link", name="Show the message").first.click()
    expect(studio.page.locator("article.selected")).to_contain_text("I prefer slow boats")


def test_an_answer_shows_the_memories_the_model_was_told(
    server: Running, session: str, open_studio: OpenStudio
) -> None:
    studio = open_studio(server)
    studio.begin("later")
    studio.say("Which tea or coffee do I like?")
    studio.hears("Noted.")
    studio.do("Noted.", "Show the prompt")
    panel = studio.page.get_by_role("complementary", name="Prompt")
    expect(panel.locator(".part.kind-profile")).to_contain_text("Ann Lee")
    memory = panel.locator(".part.kind-memory", has_text="green tea").first
    memory.locator("summary").click()
    studio.shot("seen")
    memory.get_by_role("link").click()
    expect(studio.page.get_by_role("article", name="Memory")).to_contain_text("green tea")


def test_undoing_a_commit_takes_its_memories_back(server: Running, open_studio: OpenStudio) -> None:
    told(server, "winter", "I prefer wool to down.")
    studio = open_studio(server, "#/memory?category=commits")
    commit = studio.page.locator(".commit").first
    expect(commit.locator(".badge").first).to_have_text("committed")
    studio.shot("commits")
    commit.get_by_role("button", name="Undo").click()
    studio.page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    expect(commit.locator(".badge").first).to_have_text("undone")
    studio.page.locator(".filter", has_text="All").click()
    studio.page.locator(".memory-list .memory-entry, .memory-list .empty").first.wait_for()
    expect(studio.page.locator(".memory-entry", has_text="wool")).to_have_count(0)


def test_a_memory_that_is_forgotten_is_gone(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server)
    studio.page.locator(".welcome").wait_for()
    told(server, "rain", "I prefer umbrellas to hats.")
    studio.go("#/memory")
    entries = studio.page.locator(".memory-entry", has_text="umbrellas")
    entries.first.click()
    studio.page.locator("#forget").click()
    studio.page.get_by_role("dialog").get_by_role("button", name="Forget").click()
    expect(entries).to_have_count(0)


def test_the_search_finds_what_was_said_and_goes_there(
    server: Running, session: str, open_studio: OpenStudio
) -> None:
    studio = open_studio(server)
    studio.page.locator("#search").fill("green tea")
    found = studio.page.locator(".session.found", has_text="message")
    expect(found.first).to_contain_text("green tea")
    studio.shot("found")
    found.first.click()
    expect(studio.page.locator("article.selected")).to_contain_text("green tea")
    studio.page.locator("#search").fill("")


def test_usage_is_counted_by_day_model_and_session(
    server: Running, session: str, open_studio: OpenStudio
) -> None:
    studio = open_studio(server)
    studio.page.locator(".welcome").wait_for()
    studio.page.keyboard.press("Escape")
    studio.page.keyboard.press("u")
    expect(studio.page.locator(".tiles")).to_contain_text("Answers")
    expect(studio.page.locator(".canvas canvas")).to_have_count(1)
    expect(studio.page.locator(".legend")).to_contain_text("scripted")
    row = studio.page.locator(".table tbody tr", has_text="hello")
    expect(row).to_have_count(1)
    studio.shot("usage")
    studio.page.set_viewport_size({"width": 360, "height": 740})
    assert studio.too_wide() == []
    studio.page.set_viewport_size({"width": 1280, "height": 800})
    row.get_by_role("link").click()
    studio.sees(SAID)


def test_a_session_is_exported_as_a_file(
    server: Running, session: str, open_studio: OpenStudio
) -> None:
    studio = open_studio(server, f"#/s/{session.rpartition('/')[2]}")
    studio.sees(SAID)
    studio.page.get_by_role("button", name="More").click()
    with studio.page.expect_download() as download:
        studio.page.get_by_role("menuitem", name="Export the session").click()
    assert download.value.suggested_filename == "hello.jsonl"
    assert SAID in download.value.path().read_text(encoding="utf-8")
