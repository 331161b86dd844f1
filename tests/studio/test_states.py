"""States that a person is told of, in plain words: sending, interrupted, failed, back again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from sennit import ModelError
from sennit.testing import ScriptedModel
from tests.http_server import Running, all_events, run, serving
from tests.studio.conftest import OpenStudio, Scene
from tests.studio.pages import ENGINE_WORDS, FRAMES, Studio
from tests.studio.stepped import SteppedModel
from tests.studio.test_withstanding import with_answer

# Typing


def test_what_is_typed_without_a_click_is_written(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.page.locator(".welcome").wait_for()
    field = studio.page.locator("#say")
    expect(field).to_be_focused()
    studio.page.keyboard.type("hello mum")
    expect(field).to_have_value("hello mum")
    studio.page.keyboard.press("Enter")
    scene.model.say("Hello.")
    scene.model.finish()
    studio.hears("Hello.")
    expect(field).to_be_focused()
    studio.page.keyboard.type("um, nice for real")
    expect(field).to_have_value("um, nice for real")
    field.fill("")


@pytest.mark.parametrize("click", [".list", ".session-head h1", "article.answer"])
def test_what_is_typed_after_a_click_elsewhere_is_written(
    scene: Scene, open_studio: OpenStudio, click: str
) -> None:
    studio = answered(scene, open_studio)
    studio.page.locator(click).first.click()
    studio.page.keyboard.type("mend a net, draft two")
    expect(studio.page.locator("#say")).to_have_value("mend a net, draft two")
    expect(studio.page.get_by_role("dialog")).to_have_count(0)
    studio.page.locator("#say").fill("")


def test_escape_that_closes_something_makes_no_shortcuts(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = answered(scene, open_studio)
    studio.do("The bowline.", "Show the prompt")
    panel = studio.page.get_by_role("complementary", name="Prompt")
    expect(panel.locator(".part")).not_to_have_count(0)
    studio.page.keyboard.press("Escape")
    expect(panel).to_have_count(0)
    studio.page.keyboard.type("mum")
    expect(studio.page.locator("#say")).to_have_value("mum")
    studio.page.locator("#say").fill("")


def test_letters_are_shortcuts_after_escape(scene: Scene, open_studio: OpenStudio) -> None:
    studio = answered(scene, open_studio)
    studio.page.keyboard.press("Escape")
    studio.page.keyboard.press("m")
    expect(studio.page.get_by_role("heading", name="Memory")).to_be_visible()


def answered(scene: Scene, open_studio: OpenStudio) -> Studio:
    """A session with a question and its answer."""
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    scene.model.finish()
    studio.hears("The bowline.")
    return studio


# Markdown


def test_lists_tables_and_tasks_are_shown_as_they_were_said(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Show")
    table = "|a|b|\n|:-:|--:|\n|c|d|"
    scene.model.say(f"3. three\n4. four\n\n- [x] made\n- [ ] open\n\n{table}\n\nAll.")
    scene.model.finish()
    studio.hears("All.")
    answer = studio.answers.last
    expect(answer.locator("ol")).to_have_attribute("start", "3")
    boxes = answer.locator("input")
    expect(boxes).to_have_count(2)
    for number, name in enumerate(["Done", "To do"]):
        expect(boxes.nth(number)).to_have_attribute("type", "checkbox")
        expect(boxes.nth(number)).to_be_disabled()
        expect(boxes.nth(number)).to_have_accessible_name(name)
    for number, align in enumerate(["center", "right"]):
        for cell in ("th", "td"):
            drawn = answer.locator(cell).nth(number)
            expect(drawn).to_have_css("text-align", re.compile(rf"(-webkit-)?{align}"))


# Tool calls


def test_a_call_that_was_passed_by_can_no_longer_be_decided(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    studio.page.locator(".card.asks").wait_for()
    studio.idle()
    studio.say("Actually never mind")
    scene.model.say("As you like.")
    scene.model.finish()
    studio.hears("As you like.")
    for _ in range(2):
        expect(studio.page.locator(".card")).to_contain_text(
            "Not run: the conversation continued without it"
        )
        expect(studio.page.get_by_role("button", name="Approve")).to_have_count(0)
        studio.page.reload()
        studio.sees("As you like.")


def test_a_call_that_another_window_passed_by_says_so_when_it_is_approved(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.expected_refusals = 1
    studio.begin("passed")
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    approve = studio.page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    studio.idle()
    started = run(scene.server, "/api/sessions/passed/branches/main", "Never mind")
    scene.model.say("As you like.")
    scene.model.finish()
    all_events(scene.server, started["events"])
    approve.click()
    expect(studio.page.locator(".toast.failed").last).to_have_text(
        "This call no longer waits for a decision."
    )
    expect(studio.page.locator(".card")).to_contain_text("Not run")
    expect(approve).to_have_count(0)


def test_a_decision_is_seen_to_be_under_way(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    approve = studio.page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    studio.idle()
    studio.hold("**/approvals/*", [])
    approve.click()
    expect(approve).to_be_disabled()
    studio.page.unroute("**/approvals/*")
    scene.model.say("Done.")
    scene.model.finish()
    studio.hears("Done.")


# Restarts and lost connections


def test_an_answer_cut_off_by_a_restart_stays_and_is_gone_on_with(
    tmp_path: Path, open_studio: OpenStudio
) -> None:
    model = SteppedModel()
    with serving(tmp_path / "s.db", models=[model]) as server:
        studio = open_studio(server)
        studio.begin()
        studio.say("Name knots")
        model.say("The bowline")
        studio.sees("The bowline")
        studio.say("And bends")
        expect(studio.message("And bends")).to_contain_text("Queued")
    model.forget()
    half = studio.message("The bowline")
    expect(half).to_contain_text("Interrupted")
    expect(studio.message("And bends")).to_contain_text("Queued")
    with serving(tmp_path / "s.db", models=[model], port=server.port):
        # All of it is there without a click or a reload, and after one.
        expect(studio.page.locator(".notices")).not_to_contain_text("connection")
        expect(studio.page.locator(".session-list [role=alert]")).to_have_count(0)
        studio.page.reload()
        expect(half).to_contain_text("Interrupted")
        expect(studio.message("And bends")).to_contain_text("Queued")
        resume = studio.page.locator("#resume")
        studio.hold("**/resume", [])
        resume.click()
        expect(resume).to_be_disabled()
        expect(resume).to_have_text("Resuming…")
        studio.page.unroute("**/resume")
        model.say("The hitch, the sheet bend.")
        model.finish()
        studio.hears("The hitch, the sheet bend.")
        expect(studio.page.locator(".notice")).to_have_count(0)
        expect(studio.messages).to_have_count(3)
        expect(studio.page.locator(".interrupted")).to_have_count(0)


def test_a_text_sent_after_an_interrupted_answer_leaves_that_in_its_place(
    tmp_path: Path, open_studio: OpenStudio
) -> None:
    model = SteppedModel()
    with serving(tmp_path / "s.db", models=[model]) as server:
        studio = open_studio(server)
        studio.begin()
        studio.say("Name knots")
        model.say("The bowline")
        studio.sees("The bowline")
    model.forget()
    with serving(tmp_path / "s.db", models=[model], port=server.port):
        studio.page.reload()
        expect(studio.message("The bowline")).to_contain_text("Interrupted")
        studio.say("Others, please")
        model.say("The hitch.")
        model.finish()
        studio.hears("The hitch.")
        kinds = ["instruction", "answer", "instruction", "answer"]
        expect(studio.messages).to_have_class([re.compile(rf"\b{kind}\b") for kind in kinds])
        expect(studio.message("The bowline")).to_contain_text("Interrupted")


VIEWS = {
    "home": ("#/", ".welcome"),
    "memory": ("#/memory", ".memory-list"),
    "commits": ("#/memory?category=commits", ".page"),
    "usage": ("#/usage", ".page"),
    "chat": ("", ".chat"),
    "tree": ("/tree", ".tree"),
    "compare": ("/compare", ".compare"),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_that_could_not_be_read_is_read_when_the_server_is_back(
    scene: Scene, open_studio: OpenStudio, view: str
) -> None:
    made = scene.server.post("/api/sessions").json()["id"]
    branch = f"/api/sessions/{made}/branches"
    scene.server.post(f"{branch}/main/messages", {"role": "user", "text": "Hi"})
    scene.server.post(f"{branch}/main/fork", {"name": "other"})
    where, shown = VIEWS[view]
    link = where if where.startswith("#") else f"#/s/{made}/main{where}"
    studio = open_studio(scene.server)
    studio.page.locator(".welcome").wait_for()
    studio.page.context.route("**/api/**", lambda route: route.abort("connectionrefused"))
    studio.go(link)
    if view == "home":
        studio.page.evaluate("dispatchEvent(new Event('sessionschange'))")
    failed = studio.page.locator("[role=alert]").first
    expect(failed).to_contain_text("cannot be reached")
    studio.mend_connections()
    expect(studio.page.locator(shown)).to_be_visible()
    expect(studio.page.locator("[role=alert]")).to_have_count(0)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("text/html", "<h1>Service Unavailable</h1>"),  # as a proxy says it
        ("application/json", '{"error": {"code": "store", "message": "The database is away."}}'),
    ],
    ids=["proxy", "database"],
)
def test_a_view_is_read_when_what_stands_before_or_behind_the_server_is_back(
    scene: Scene, open_studio: OpenStudio, kind: str, body: str
) -> None:
    link = with_answer(scene.server, "The bowline.")
    studio = open_studio(scene.server)
    studio.page.locator(".welcome").wait_for()
    studio.page.context.route(
        "**/api/**", lambda route: route.fulfill(status=503, content_type=kind, body=body)
    )
    studio.go(link)
    studio.page.get_by_role("button", name="Try again").first.wait_for()
    studio.mend_connections()
    studio.sees("The bowline.")
    expect(studio.page.locator("[role=alert]")).to_have_count(0)


def test_what_is_sent_is_seen_before_the_server_has_answered(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    held: list[Route] = []
    studio.hold("**/runs", held)
    studio.say("Name a knot")
    expect(studio.message("Name a knot")).to_contain_text("Sending")
    studio.page.unroute("**/runs")
    scene.model.say("The bowline.")
    scene.model.finish()
    studio.hears("The bowline.")
    expect(studio.messages).to_have_count(2)
    expect(studio.message("Name a knot")).not_to_contain_text("Sending")


def test_an_answer_that_was_stopped_says_so(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Count")
    scene.model.say("One, two")
    studio.sees("One, two")
    studio.hold("**/cancel", [])
    studio.page.locator("#stop").click()
    expect(studio.page.locator("#stop")).to_be_disabled()
    studio.page.unroute("**/cancel")
    studio.idle()
    scene.model.forget()
    expect(studio.message("One, two")).to_contain_text("Stopped")


# Failures


def test_why_a_model_failed_is_told_after_a_reload_too(
    tmp_path: Path, open_studio: OpenStudio
) -> None:
    model = ScriptedModel([ModelError("It is down.", kind="bad_request"), "Here I am."])
    with serving(tmp_path / "s.db", models=[model]) as server:
        studio = open_studio(server)
        studio.begin()
        studio.say("Hello?")
        error = studio.page.locator(".notice.error")
        expect(error).to_contain_text("It is down.")
        studio.page.reload()
        expect(error).to_contain_text("It is down.")
        expect(studio.page.locator("#answer")).to_have_text("Retry")
    with serving(tmp_path / "s.db", models=[model], port=server.port):
        studio.page.reload()
        expect(error).to_contain_text("It is down.")
        studio.page.locator("#answer").click()
        studio.hears("Here I am.")
        expect(studio.page.locator(".notice")).to_have_count(0)


# Two windows


def test_a_second_window_says_it_to_the_answer_under_way(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.expected_refusals = 1
    studio.begin("two")
    started = run(scene.server, "/api/sessions/two/branches/main", "Name a knot")
    scene.model.say("The bowline.")
    studio.say("And a bend")
    expect(studio.message("And a bend")).to_contain_text("Queued")
    studio.sees("The bowline.")
    scene.model.finish()
    scene.model.say("The sheet bend.")
    scene.model.finish()
    all_events(scene.server, started["events"])
    studio.hears("The sheet bend.")
    expect(studio.messages).to_have_count(4)
    expect(studio.page.locator("body")).not_to_contain_text(ENGINE_WORDS)


def test_a_second_window_is_told_in_plain_words_that_an_answer_comes(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.expected_refusals = 1
    studio.begin("asked")
    branch = "/api/sessions/asked/branches/main"
    scene.server.post(f"{branch}/messages", {"role": "user", "text": "Name a knot"})
    studio.page.reload()
    expect(studio.page.locator("#answer")).to_be_visible()
    started = run(scene.server, branch, None)
    studio.page.locator("#answer").click()
    toast = studio.page.locator(".toast.failed").last
    expect(toast).to_contain_text("already answering in another window")
    scene.model.say("The bowline.")
    scene.model.finish()
    all_events(scene.server, started["events"])
    studio.hears("The bowline.")


def test_what_is_found_is_what_was_said(scene: Scene, open_studio: OpenStudio) -> None:
    studio = answered(scene, open_studio)
    with studio.page.expect_response("**/api/find?*"):
        studio.page.locator("#search").fill("bowline")
    found = studio.page.locator(".session.found .title").first
    expect(found).to_have_text("The bowline.")  # without the name of the model
    studio.page.locator("#search").fill("")


# Memory


@pytest.fixture(scope="module")
def knowing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    model = ScriptedModel(["Noted."] * 30)
    with serving(tmp_path_factory.mktemp("states") / "s.db", models=[model]) as running:
        yield running


def test_an_answer_says_what_of_memory_it_was_given(
    knowing: Running, open_studio: OpenStudio
) -> None:
    session = f"/api/sessions/{knowing.post('/api/sessions', {'key': 'tea'}).json()['id']}"
    said = "My name is Ann Lee. I prefer green tea to coffee."
    all_events(knowing, run(knowing, f"{session}/branches/main", said)["events"])
    assert knowing.post(f"{session}/commit").json()["memories_extracted"] > 0
    studio = open_studio(knowing)
    studio.begin("later")
    studio.say("Which tea or coffee do I like?")
    studio.hears("Noted.")
    chip = studio.page.locator(".used")
    for _ in range(2):
        expect(chip).to_have_count(1)
        expect(chip).to_contain_text(re.compile(r"Used your profile and \d+ memor(y|ies)"))
        studio.page.reload()
    chip.click()
    panel = studio.page.get_by_role("complementary", name="Prompt")
    expect(panel.locator(".part.kind-profile")).to_contain_text("Ann Lee")
    memory = panel.locator(".part.kind-memory").first
    memory.locator("summary").click()
    memory.get_by_role("link").click()
    item = studio.page.get_by_role("article", name="Memory")
    expect(item.locator(".item-head")).not_to_contain_text("viking://")


def test_an_answer_that_was_given_nothing_says_nothing(
    knowing: Running, open_studio: OpenStudio
) -> None:
    studio = open_studio(knowing)
    studio.begin("bare")
    studio.page.get_by_label("Use memory").uncheck()
    studio.say("Which tea or coffee do I like?")
    studio.hears("Noted.")
    studio.page.evaluate(FRAMES)
    expect(studio.page.locator(".used")).to_have_count(0)
    studio.page.get_by_label("Use memory").check()


def test_a_model_is_told_nothing_while_the_memory_page_shows_nothing(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, "#/memory")
    expect(studio.page.locator(".empty")).to_contain_text("No memories yet.")
    for text in ("I sail to Lisbon with my sister", "Where do I sail with my sister?"):
        studio.begin()
        studio.say(text)
        scene.model.say("Noted.")
        scene.model.finish()
        studio.hears("Noted.")
    assert "Lisbon" not in str(scene.model.requests[-1].messages)
    studio.do("Noted.", "Show the prompt")
    panel = studio.page.get_by_role("complementary", name="Prompt")
    expect(panel.locator(".part.kind-message")).to_have_count(1)
    expect(panel.locator(".part:is(.kind-memory, .kind-recalled, .kind-profile)")).to_have_count(0)
    expect(studio.page.locator(".used")).to_have_count(0)


def test_an_empty_filter_of_memory_speaks_of_itself(
    knowing: Running, open_studio: OpenStudio
) -> None:
    studio = open_studio(knowing, "#/memory?category=cases")
    expect(studio.page.locator(".empty")).to_have_text("No memories under Cases yet.")


def test_what_a_model_without_a_name_saw_names_no_model(
    knowing: Running, open_studio: OpenStudio
) -> None:
    made = knowing.post("/api/sessions").json()["id"]
    branch = f"/api/sessions/{made}/branches"
    for role, text in (("user", "Hi"), ("assistant", "Hello")):
        knowing.post(f"{branch}/main/messages", {"role": role, "text": text})
    studio = open_studio(knowing, f"#/s/{made}/main")
    studio.do("Hello", "Show the prompt")
    panel = studio.page.get_by_role("complementary", name="Prompt")
    expect(panel.locator(".part")).to_have_count(1)
    expect(panel).not_to_contain_text(ENGINE_WORDS)
