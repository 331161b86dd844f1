"""Drafts and the place of the page, over reloads, refusals, other windows and the way back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.http_server import Gate, Talker, run, serving
from tests.studio.conftest import OpenStudio, Scene
from tests.studio.pages import FRAMES, Studio
from tests.studio.test_withstanding import with_answer

# Whether anybody sees the tab, as the browser says it.
_SEEN = """(seen) => {
  Object.defineProperty(document, 'hidden', { value: !seen, configurable: true });
  document.dispatchEvent(new Event('visibilitychange'));
}"""


def show(studio: Studio, where: str) -> None:
    """Go there in the page that is open."""
    studio.page.evaluate("(where) => { location.hash = where; }", where)


def test_what_is_written_stays_over_a_reload(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server, with_answer(scene.server, "The bowline."))
    studio.page.locator("#say").fill("Half a thought")
    studio.do("Name a knot", "Edit on a new branch")
    studio.page.get_by_label("New text").fill("Name two knots")
    studio.page.reload()
    expect(studio.page.locator("#say")).to_have_value("Half a thought")
    studio.do("Name a knot", "Edit on a new branch")
    expect(studio.page.get_by_label("New text")).to_have_value("Name two knots")


def test_a_text_that_was_not_taken_comes_back_to_who_left_and_returned(
    scene: Scene, open_studio: OpenStudio
) -> None:
    here, there = (with_answer(scene.server, text) for text in ("The bowline.", "The hitch."))
    studio = open_studio(scene.server, here)
    studio.sees("The bowline.")
    held: list[Route] = []
    studio.page.route(
        "**/runs", lambda one: held.append(one) if one.request.method == "POST" else one.continue_()
    )
    with studio.page.expect_request(lambda one: one.method == "POST"):
        studio.say("Precious")
    show(studio, there)
    studio.sees("The hitch.")
    show(studio, here)
    studio.sees("The bowline.")
    held[0].abort()
    expect(studio.page.locator("#say")).to_have_value("Precious")
    studio.page.unroute_all()


def test_a_reason_to_deny_a_call_stays_over_a_reload_and_is_told_by_the_key_too(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    reason = studio.page.get_by_label("Reason for denying")
    reason.fill("There is enough rope")
    studio.page.reload()
    expect(reason).to_have_value("There is enough rope")
    studio.idle()
    studio.page.locator("#say").press("Escape")
    studio.page.keyboard.press("d")
    studio.page.keyboard.press("d")
    expect(studio.page.locator(".card.outcome")).to_contain_text("There is enough rope")
    scene.model.say("So be it.")
    scene.model.finish()
    studio.hears("So be it.")


def test_a_session_that_was_refused_leaves_what_was_written_for_it(
    scene: Scene, open_studio: OpenStudio
) -> None:
    scene.server.post("/api/sessions", {"key": "taken"}).raise_for_status()
    studio = open_studio(scene.server)
    studio.expected_refusals = 1
    studio.page.locator("#new").click()
    dialog = studio.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("taken")
    system = dialog.get_by_label("System prompt")
    system.fill("Answer in one word.")
    dialog.get_by_role("button", name="Create").click()
    expect(dialog.get_by_role("alert")).to_contain_text("'taken'")
    expect(system).to_have_value("Answer in one word.")
    dialog.get_by_label("Name").fill("free")
    dialog.get_by_role("button", name="Create").click()
    studio.sees("Answer in one word.")
    expect(dialog).to_have_count(0)


def test_a_text_that_is_marked_beyond_the_edge_of_a_window_does_not_close_it(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.page.locator("#new").click()
    dialog = studio.page.get_by_role("dialog")
    system = dialog.get_by_label("System prompt")
    system.fill("Answer in one word.")
    box = system.bounding_box()
    assert box is not None
    mouse = studio.page.mouse
    mouse.move(box["x"] + box["width"] / 2, box["y"] + 15)
    mouse.down()
    mouse.move(10, box["y"] + 15, steps=3)
    mouse.up()
    studio.page.evaluate(FRAMES)
    expect(system).to_have_value("Answer in one word.")
    mouse.click(10, 10)
    expect(dialog).to_have_count(0)


def test_a_question_about_a_session_goes_with_it(scene: Scene, open_studio: OpenStudio) -> None:
    first, second = (with_answer(scene.server, text) for text in ("The bowline.", "The hitch."))
    studio = open_studio(scene.server, first)
    studio.sees("The bowline.")
    show(studio, second)
    studio.sees("The hitch.")
    studio.page.locator(".session-head").get_by_role("button", name="More").click()
    studio.page.get_by_role("menuitem", name="Delete this session").click()
    expect(studio.page.get_by_role("dialog")).to_be_visible()
    studio.page.go_back()
    studio.sees("The bowline.")
    expect(studio.page.get_by_role("dialog")).to_have_count(0)


def test_a_link_to_a_branch_made_elsewhere_leads_there_and_one_deleted_is_told(
    scene: Scene, open_studio: OpenStudio
) -> None:
    where = with_answer(scene.server, "The bowline.")
    studio = open_studio(scene.server, where)
    studio.sees("The bowline.")
    branches = f"/api/sessions/{where.removeprefix('#/s/')}/branches"
    fork = scene.server.post(f"{branches}/main/fork", {"name": "newer"}).json()["id"]
    show(studio, f"{where}/{fork}")
    studio.is_on("newer")
    studio.sees("The bowline.")
    scene.server.delete(f"{branches}/{fork}").raise_for_status()
    studio.page.reload()
    expect(studio.page.locator(".toast.failed")).to_contain_text("Branch not found")
    studio.is_on("main")


def test_a_branch_that_is_renamed_elsewhere_stays_in_sight(
    scene: Scene, open_studio: OpenStudio
) -> None:
    where = with_answer(scene.server, "The bowline.")
    branches = f"/api/sessions/{where.removeprefix('#/s/')}/branches"
    fork = scene.server.post(f"{branches}/main/fork", {"name": "old"}).json()["id"]
    studio = open_studio(scene.server, f"{where}/old")
    studio.is_on("old")
    scene.server.put(f"{branches}/{fork}", {"name": "new"}).raise_for_status()
    studio.say("And another")
    scene.model.say("The hitch.")
    scene.model.finish()
    studio.hears("The hitch.")
    studio.is_on("new")


def test_who_went_elsewhere_is_not_led_to_the_session_that_begins(
    scene: Scene, open_studio: OpenStudio
) -> None:
    where = with_answer(scene.server, "The bowline.")
    studio = open_studio(scene.server)
    studio.hold("**/runs", [])
    with studio.page.expect_request("**/runs"):
        studio.say("Name a hitch")
    show(studio, where)
    studio.sees("The bowline.")
    with studio.page.expect_response("**/runs"):
        studio.page.unroute("**/runs")
    scene.model.say("The clove hitch.")
    scene.model.finish()
    expect(studio.page.get_by_role("link", name="Name a hitch").first).to_be_visible()
    studio.page.evaluate(FRAMES)
    studio.sees("The bowline.")


def test_a_tab_that_nobody_sees_holds_no_connection_and_catches_up(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name knots")
    scene.model.say("The bowline")
    studio.sees("The bowline")
    with studio.page.expect_event("requestfailed", lambda one: "/events" in one.url):
        studio.page.evaluate(_SEEN, False)
    scene.model.say(" and the hitch")
    expect(studio.page.locator(".notice")).to_have_count(0)
    studio.page.evaluate(_SEEN, True)
    studio.sees("The bowline and the hitch")
    scene.model.finish()
    studio.hears("The bowline and the hitch")


def lose_the_answer(route: Route) -> None:
    """Let a request reach the server, and nothing come back."""
    route.fetch()
    route.abort("connectionreset")


def test_what_is_said_to_a_run_is_said_once_though_nobody_heard_that_it_was(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name knots")
    scene.model.say("The bowline")
    studio.sees("The bowline")
    studio.page.route("**/steer", lose_the_answer)
    with studio.page.expect_event("requestfailed", lambda one: one.url.endswith("/steer")):
        studio.say("Short ones")
    expect(studio.message("Short ones")).to_contain_text("Queued")
    expect(studio.page.locator("#say")).to_have_value("")  # it is seen to have arrived
    studio.page.unroute("**/steer")
    scene.model.finish()
    scene.model.say("The hitch.")
    scene.model.finish()
    studio.hears("The hitch.")
    expect(studio.message("Short ones")).to_have_count(1)
    expect(studio.messages).to_have_count(4)


def test_what_begins_a_session_is_said_once_though_nobody_heard_that_it_was(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.page.route("**/runs", lose_the_answer)
    studio.say("Name a splice")
    studio.sees("Name a splice")
    scene.model.say("The eye splice.")
    scene.model.finish()
    studio.hears("The eye splice.")
    studio.page.unroute("**/runs")
    expect(studio.page.locator("#say")).to_have_value("")  # it is seen to have arrived
    expect(studio.messages).to_have_count(2)


def test_a_text_that_arrived_before_a_reload_is_not_there_to_be_sent_again(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, with_answer(scene.server, "The bowline."))
    studio.sees("The bowline.")
    studio.page.route("**/runs", lambda route: route.fetch())  # its answer is long in coming
    studio.say("And a hitch")
    scene.model.say("The clove hitch.")
    scene.model.finish()
    studio.page.reload()
    studio.hears("The clove hitch.")
    expect(studio.page.locator("#say")).to_have_value("")
    expect(studio.messages).to_have_count(4)
    studio.page.unroute("**/runs")


# A browser that lets pages keep nothing, as with cookies blocked, and one that has no room left.
_KEEPS_NOTHING = """for (const name of ['sessionStorage', 'localStorage']) {
  const get = () => { throw new DOMException('Access is denied.', 'SecurityError'); };
  Object.defineProperty(window, name, { get });
}"""
_HAS_NO_ROOM = """Storage.prototype.setItem = () => {
  throw new DOMException('There is no room.', 'QuotaExceededError');
};"""


@pytest.mark.parametrize("script", [_KEEPS_NOTHING, _HAS_NO_ROOM], ids=["nothing", "no room"])
def test_a_browser_that_keeps_nothing_shows_a_page_that_works(
    browser: Browser, scene: Scene, tmp_path: Path, script: str
) -> None:
    with browser.new_context() as context:
        page = context.new_page()
        page.add_init_script(script)
        studio = Studio(page, scene.server.url)
        studio.begin_test(tmp_path)
        studio.go("#/")
        studio.say("Name a knot")
        scene.model.say("The bowline.")
        scene.model.finish()
        studio.hears("The bowline.")
        page.locator("#say").press_sequentially("And more")
        page.locator("#tab-tree").click()
        page.locator("#tab-chat").click()
        expect(page.locator("#say")).to_have_value("And more")
        assert studio.broken_rules() == []


# A window that nobody is at: Chromium tells every page of a test that it is the one.
_NOT_IN_USE = "document.hasFocus = () => false;"


def test_many_windows_with_answers_under_way_leave_room_for_another(
    browser: Browser, tmp_path: Path
) -> None:
    gate = Gate()
    with serving(tmp_path / "s.db", models=[Talker(gate=gate)]) as server:
        context = browser.new_context()
        context.add_init_script(_NOT_IN_USE)
        windows: list[Studio] = []
        for number in range(7):
            session = server.post("/api/sessions").json()
            branch = session["branches"][0]["id"]
            run(server, f"/api/sessions/{session['id']}/branches/{branch}", f"Number {number}")
            windows.append(Studio(context.new_page(), server.url))
            windows[-1].begin_test(tmp_path)
            windows[-1].go(f"#/s/{session['id']}/{branch}")
        for window in windows:
            expect(window.answers).to_have_text(re.compile("You"))
        gate.open()
        for number, window in enumerate(windows):
            window.hears(f"You said: Number {number}")
            assert window.broken_rules() == []
        context.close()
