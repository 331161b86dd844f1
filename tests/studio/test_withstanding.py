"""Texts, numbers, links and keys that nobody foresaw: the page stays usable and tells the truth."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Route, expect

import sennit
from sennit import AssistantResponseContent, Message, Tool
from tests.http_server import Running, serving
from tests.studio.conftest import OpenStudio, Scene
from tests.studio.pages import FRAMES
from tests.studio.stepped import SteppedModel


def with_answer(server: Running, answer: str) -> str:
    """The address of a new session in which a model has said that."""
    session = server.post("/api/sessions").json()["id"]
    branches = f"/api/sessions/{session}/branches"
    for role, text in (("user", "Name a knot"), ("assistant", answer)):
        said = {"role": role, "text": text}
        server.post(f"{branches}/main/messages", said).raise_for_status()
    return f"#/s/{session}"


@pytest.mark.parametrize("bomb", [">" * 20_000, "- " * 20_000], ids=["quotes", "lists"])
def test_a_text_nested_too_deeply_for_the_parser_is_shown_as_it_is(
    scene: Scene, open_studio: OpenStudio, bomb: str
) -> None:
    studio = open_studio(scene.server, with_answer(scene.server, f"{bomb}\n\nThe end."))
    expect(studio.answers.last).to_contain_text("The end.")
    studio.say("And another")
    scene.model.say(bomb)
    scene.model.say("\n\nThe hitch.")
    scene.model.finish()
    studio.hears("The hitch.")


def test_a_very_long_paragraph_keeps_its_lines_and_is_not_searched_for_emphasis(
    scene: Scene, open_studio: OpenStudio
) -> None:
    lines = "\n".join(["**bold** <b>" * 1_000] * 2)
    answer = f"{lines}\n\n**A short one.**"
    studio = open_studio(scene.server, with_answer(scene.server, answer))
    body = studio.answers.last.locator(".prose")
    expect(body.locator("strong").last).to_have_text("A short one.")
    first = body.locator("p").first
    assert first.inner_text().splitlines()[0] == "**bold** <b>" * 1_000
    assert first.locator("br").count() == 1


def test_a_model_that_is_not_named_by_a_text_leaves_its_answer_readable(
    tmp_path_factory: pytest.TempPathFactory, open_studio: OpenStudio
) -> None:
    path = tmp_path_factory.mktemp("noted") / "s.db"
    with sennit.open(path) as client:
        session = client.session("noted")
        session.create_branch("main")
        for model in (5, {"a": 1}, ["x"]):
            said = AssistantResponseContent(assistant_response=f"From {model}")
            session.add_message(Message(said, metadata={"model": model}), branches="main")
    with serving(path) as server:
        studio = open_studio(server, f"#/s/{session.id}")
        expect(studio.answers).to_have_count(3)
        expect(studio.answers.nth(1).locator(".model")).to_contain_text("{")


def test_a_message_that_cannot_be_drawn_leaves_the_others_in_sight(
    scene: Scene, open_studio: OpenStudio
) -> None:
    where = with_answer(scene.server, "The bowline.")

    def damaged(route: Route) -> None:
        answer = route.fetch()
        told: dict[str, Any] = answer.json()
        told["messages"][0]["text"] = 5
        route.fulfill(response=answer, json=told)

    studio = open_studio(scene.server)
    studio.page.route(re.compile(r"/messages\?limit=60$"), damaged)
    studio.go(where)
    studio.sees("The bowline.")
    expect(studio.page.locator(".row").first).to_contain_text("Cannot display this")
    expect(studio.page.locator("#say")).to_be_visible()
    studio.page.unroute_all()
    assert studio.complaints, "the browser's console tells why"
    studio.complaints.clear()


@pytest.mark.parametrize("place", ["0.5", "-0.5", "1e99", "Infinity", "x", ""])
def test_a_link_to_any_place_opens_the_conversation(
    scene: Scene, open_studio: OpenStudio, place: str
) -> None:
    where = with_answer(scene.server, "The bowline.")
    studio = open_studio(scene.server, f"{where}/main?at={place}")
    studio.sees("The bowline.")
    studio.page.evaluate(FRAMES)
    studio.sees("The bowline.")


def pay(account: int, remark: str) -> str:
    """Pay into an account."""
    return f"paid {account}"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    model = SteppedModel()
    path = tmp_path_factory.mktemp("bank") / "s.db"
    with serving(path, models=[model], tools=[Tool(pay, needs_approval=True)]) as server:
        yield Scene(server, model)


def test_what_is_to_be_approved_is_shown_exactly(bank: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(bank.server)
    studio.begin()
    studio.say("Pay")
    arguments = '{"account": 9007199254740993, "remark": "to \\u202egpj.exe\\u202c a\\u200bb"}'
    bank.model.call("pay", arguments, "call_1")
    card = studio.page.locator(".card.asks")
    expect(card).to_contain_text("9007199254740993")  # as JavaScript counts, it would end in 2
    expect(card).to_contain_text("to ⟨U+202E⟩gpj.exe⟨U+202C⟩ a⟨U+200B⟩b")
    studio.page.reload()
    expect(card).to_contain_text("9007199254740993")
    card.get_by_role("button", name="Approve").click()
    expect(studio.page.locator(".card.outcome")).to_contain_text("paid 9007199254740993")
    bank.model.say("Paid.")
    bank.model.finish()
    studio.hears("Paid.")


def test_a_key_that_is_held_down_approves_nothing(bank: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(bank.server)
    studio.begin()
    studio.say("Pay")
    bank.model.call("pay", '{"account": 1, "remark": ""}', "call_1")
    card = studio.page.locator(".card.asks")
    card.wait_for()
    studio.idle()
    studio.page.locator("#say").press("Escape")
    asked: list[str] = []
    studio.page.on("request", lambda one: asked.append(one.url))
    for _ in range(3):
        studio.page.keyboard.down("a")  # again without a release: as a held key repeats
    studio.page.evaluate(FRAMES)
    expect(studio.page.locator("article.call.selected")).to_be_visible()
    studio.page.keyboard.up("a")
    assert not [url for url in asked if "/approvals/" in url]
    studio.page.keyboard.press("a")
    expect(studio.page.locator(".card.outcome")).to_contain_text("paid 1")
    bank.model.say("Paid.")
    bank.model.finish()
    studio.hears("Paid.")
