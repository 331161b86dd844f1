"""Talking in a browser: streaming, stop, edit, retry, fork, steering, tools, judging."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import expect

from sennit import iModel
from sennit.server.http.tokens import add_token, new_token
from tests.http_server import serving
from tests.studio.conftest import OpenStudio, Scene


def test_an_answer_is_seen_piece_by_piece(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin("knots")
    expect(studio.page.locator("#say")).to_be_focused()
    expect(studio.page).to_have_title("knots · Sennit")
    studio.say("Name a knot")
    answer = studio.answers.last
    for number, piece in enumerate(["The ", "**bow", "line**", "."]):
        scene.model.say(piece)
        so_far = ["The", "The **bow", "The bowline", "The bowline."][number]
        expect(answer.locator(".prose")).to_have_text(so_far)
        expect(studio.page.locator("#stop")).to_be_visible()
    scene.model.finish()
    studio.idle()
    expect(answer.locator("strong")).to_have_text("bowline")
    expect(studio.messages).to_have_count(2)


def test_an_answer_that_is_stopped_keeps_what_was_said(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Count")
    scene.model.say("One, two")
    studio.sees("One, two")
    studio.page.locator("#stop").click()
    studio.idle()
    scene.model.forget()
    studio.sees("One, two")
    studio.say("Go on")
    scene.model.say("three")
    scene.model.finish()
    studio.hears("three")
    studio.page.reload()
    studio.sees("One, two")
    studio.sees("three")


def test_editing_a_message_answers_it_on_a_new_branch(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    scene.model.finish()
    studio.hears("The bowline.")
    studio.do("Name a knot", "Edit on a new branch")
    field = studio.page.get_by_label("New text")
    field.fill("Name a knot that slips")
    studio.page.get_by_role("button", name="Send on a new branch").click()
    scene.model.say("The slip knot.")
    scene.model.finish()
    studio.hears("The slip knot.")
    studio.is_on("main_fork_1")
    expect(studio.message("The bowline.")).to_have_count(0)
    versions = studio.message("that slips").get_by_role("group", name="Versions of this message")
    expect(versions).to_contain_text("2 / 2")
    versions.get_by_role("button", name="Previous version").click()
    studio.is_on("main")
    studio.sees("The bowline.")
    studio.page.locator("#tab-compare").click()
    columns = studio.page.locator(".column")
    expect(columns.nth(0)).to_contain_text("The bowline.")
    expect(columns.nth(1)).to_contain_text("The slip knot.")


def test_retrying_an_answer_keeps_the_old_one_beside_it(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    scene.model.finish()
    studio.hears("The bowline.")
    studio.do("The bowline.", "Retry on a new branch")
    scene.model.say("The hitch.")
    scene.model.finish()
    studio.hears("The hitch.")
    expect(studio.message("The hitch.")).to_contain_text("2 / 2")
    studio.is_on("main_fork_1")


def test_forking_after_a_message_shares_all_up_to_it(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    for question, answer in (("One?", "One."), ("Two?", "Two.")):
        studio.say(question)
        scene.model.say(answer)
        scene.model.finish()
        studio.hears(answer)
    studio.do("One.", "Fork after this message")
    studio.page.get_by_label("Name of the new branch").fill("another way")
    studio.page.keyboard.press("Enter")
    studio.is_on("another way")
    expect(studio.messages).to_have_count(2)
    studio.say("Three?")
    scene.model.say("Three.")
    scene.model.finish()
    studio.hears("Three.")
    studio.page.locator("#tab-tree").click()
    expect(studio.page.locator("svg a.head")).to_have_count(2)
    expect(studio.page.locator("svg a.fork")).to_have_count(1)


@pytest.mark.parametrize("approve", [True, False], ids=["approved", "denied"])
def test_a_tool_runs_only_when_a_person_allows_it(
    scene: Scene, open_studio: OpenStudio, approve: bool
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    card = studio.page.locator(".card.asks")
    expect(card).to_contain_text("note")
    expect(card).to_contain_text("buy rope")
    studio.shot("asks")
    studio.page.reload()  # a decision may come days later
    expect(card).to_be_visible()
    if approve:
        studio.page.keyboard.press("Escape")
        studio.page.keyboard.press("a")  # a key meant for a field lets nothing run: it goes there
        expect(studio.page.locator("article.selected .card.asks")).to_be_visible()
        studio.page.keyboard.press("a")
    else:
        card.get_by_label("Reason for denying").fill("not now")
        card.get_by_role("button", name="Deny").click()
    outcome = studio.page.locator(".card.outcome")
    expect(outcome).to_contain_text("noted: buy rope" if approve else "not now")
    expect(outcome.locator(".tool-name")).to_have_text("note")
    scene.model.say("Done.")
    scene.model.finish()
    studio.hears("Done.")
    expect(card).to_have_count(0)


def test_what_the_model_saw_is_shown_for_an_answer(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    scene.model.finish()
    studio.hears("The bowline.")
    studio.do("The bowline.", "Show the prompt")
    panel = studio.page.get_by_role("complementary", name="Prompt")
    expect(panel.locator(".part.kind-message")).to_have_count(1)
    expect(panel).to_contain_text("Name a knot")
    expect(panel).to_contain_text("tokens")
    studio.shot("seen")
    studio.page.keyboard.press("Escape")
    expect(panel).to_have_count(0)


def test_with_tokens_the_page_asks_for_one(tmp_path: Path, open_studio: OpenStudio) -> None:
    tokens = tmp_path / "tokens.json"
    token, line = new_token(user="ann")
    add_token(tokens, line)
    with serving(tmp_path / "s.db", tokens=tokens) as server:
        studio = open_studio(server)
        studio.expected_refusals = 20
        field = studio.page.get_by_label("Token")
        field.fill("snt_wrong")
        field.press("Enter")
        expect(studio.page.get_by_role("alert")).to_be_visible()
        studio.shot("login")
        field.fill(token)
        field.press("Enter")
        studio.begin("mine")
        studio.page.reload()
        expect(studio.page.get_by_role("link", name="mine")).to_be_visible()


def test_the_model_inside_answers_and_says_that_it_is_tiny(
    tmp_path: Path, open_studio: OpenStudio
) -> None:
    with serving(tmp_path / "s.db", models=[iModel("local")]) as server:
        studio = open_studio(server)
        studio.begin()
        expect(studio.page.locator(".composer")).to_contain_text("tiny")
        studio.say("Name a knot.")
        expect(studio.answers.last.locator(".prose")).to_contain_text(
            re.compile(r"\w+"), timeout=40_000
        )
        studio.page.keyboard.press("Escape")
        studio.page.keyboard.press("x")  # unless it has ended meanwhile
        studio.idle()
        studio.page.reload()
        expect(studio.answers.last.locator(".prose")).to_contain_text(re.compile(r"\w+"))


def test_what_is_said_on_the_first_page_begins_a_session(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.page.locator(".welcome").wait_for()
    studio.say("Name a knot for climbers")
    scene.model.say("The figure eight.")
    scene.model.finish()
    studio.hears("The figure eight.")
    expect(studio.page.locator(".session.here")).to_contain_text("Name a knot for climbers")


def test_what_is_said_while_an_answer_comes_is_taken_in(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    studio.sees("The bowline.")
    studio.say("And a bend")
    expect(studio.message("And a bend")).to_contain_text("Queued")
    scene.model.finish()
    scene.model.say("The sheet bend.")
    scene.model.finish()
    studio.hears("The sheet bend.")
    kinds = ["instruction", "answer", "instruction", "answer"]
    expect(studio.messages).to_have_class([re.compile(rf"\b{kind}\b") for kind in kinds])
    assert scene.model.requests[-1].messages[-1]["content"].endswith("And a bend")


def test_an_answer_is_judged_and_the_judgement_taken_back(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin("judged")
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    scene.model.finish()
    studio.hears("The bowline.")
    studio.do("The bowline.", "Good answer")
    good = studio.message("The bowline.").get_by_role("button", name="Good answer")
    expect(good).to_have_attribute("aria-pressed", "true")
    labels = "/api/sessions/judged/labels"
    assert [one["score"] for one in scene.server.get(labels).json()["labels"]] == [1.0]
    studio.page.reload()
    expect(good).to_have_attribute("aria-pressed", "true")
    good.click()
    expect(good).to_have_attribute("aria-pressed", "false")
    assert scene.server.get(labels).json()["labels"] == []


def test_the_chosen_model_answers_on_every_branch(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.page.get_by_role("combobox", name="Model").select_option("talker")
    studio.say("Hello")
    studio.hears("You said: Hello")
    studio.do("You said: Hello", "Retry on a new branch")
    studio.is_on("main_fork_1")
    studio.hears("You said: Hello")
    chosen = studio.page.get_by_role("combobox", name="Model")
    expect(chosen).to_have_value("talker")
    chosen.select_option("stepped")
