"""What things are called: a person gives sessions and branches other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.http_server import Running, serving
from tests.studio.conftest import OpenStudio
from tests.studio.pages import Studio


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("naming") / "s.db") as running:
        yield running


def made(server: Running, key: str, **given: Any) -> str:
    """A session with the branches "main" and "other"; gives its id."""
    session = server.post("/api/sessions", {"key": key, **given}).json()["id"]
    server.post(f"/api/sessions/{session}/branches", {"name": "other"})
    return session


def told(studio: Studio, words: str) -> None:
    expect(studio.page.locator(".toast.failed").last).to_contain_text(words)


def test_a_branch_gets_another_name_and_keeps_it(server: Running, open_studio: OpenStudio) -> None:
    session = made(server, "branches")
    studio = open_studio(server, f"#/s/{session}/other/tree")
    studio.rename("Rename this branch", "", was="other")
    told(studio, "must not be empty")
    studio.rename("Rename this branch", "main", was="other")
    told(studio, "already a branch named 'main'; choose another name")
    studio.is_on("other")
    studio.rename("Rename this branch", "Über / <b>Knoten</b>?", was="other")
    studio.is_on("Über / <b>Knoten</b>?")
    expect(studio.page.locator("svg a.head", has_text="Über / <b>")).to_have_count(1)
    studio.page.reload()
    studio.is_on("Über / <b>Knoten</b>?")
    expect(studio.page.locator("#tab-tree")).to_have_attribute("aria-selected", "true")
    studio.expected_refusals = 2
    found = server.get(f"/api/sessions/{session}").json()["branches"]
    assert [one["name"] for one in found] == ["main", "Über / <b>Knoten</b>?"]


def test_main_is_not_offered_another_name(server: Running, open_studio: OpenStudio) -> None:
    studio = open_studio(server, f"#/s/{made(server, 'main only')}/main")
    studio.page.locator(".session-head").get_by_role("button", name="More").click()
    expect(studio.page.get_by_role("menuitem", name="Name this session")).to_be_visible()
    expect(studio.page.get_by_role("menuitem", name="Rename this branch")).to_have_count(0)


def test_a_session_gets_a_name_and_loses_it_again(server: Running, open_studio: OpenStudio) -> None:
    session = made(server, "a key", metadata={"kept": [1]})
    studio = open_studio(server, f"#/s/{session}")
    heading = studio.page.locator(".session-head h1")
    listed = studio.page.locator(".session.here .title")
    expect(heading).to_have_text("a key")
    # What others note meanwhile is not lost.
    server.put(f"/api/sessions/{session}", {"metadata": {"kept": [1, 2]}})
    studio.rename("Name this session", "Knots for <i>beginners</i>", was="a key")
    for _ in range(2):
        expect(heading).to_have_text("Knots for <i>beginners</i>")
        expect(listed).to_have_text("Knots for <i>beginners</i>")
        expect(studio.page).to_have_title("Knots for <i>beginners</i> · Sennit")
        studio.page.reload()
    studio.page.locator("#search").fill("for <I>")
    expect(studio.page.locator(".session .title")).to_have_count(1)
    studio.page.locator("#search").fill("")
    noted = {"kept": [1, 2], "title": "Knots for <i>beginners</i>"}
    assert server.get(f"/api/sessions/{session}").json()["metadata"] == noted
    studio.rename("Name this session", "", was="Knots for <i>beginners</i>")
    expect(heading).to_have_text("a key")
    expect(listed).to_have_text("a key")
    assert server.get(f"/api/sessions/{session}").json()["metadata"] == {"kept": [1, 2]}
