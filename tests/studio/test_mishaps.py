"""When something comes between: reloads, lost connections, restarts, refusals, other people."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from sennit import ModelError
from sennit.testing import ScriptedModel
from tests.http_server import all_events, serving
from tests.studio.conftest import OpenStudio, Scene
from tests.studio.pages import ENGINE_WORDS
from tests.studio.stepped import SteppedModel


def test_reloading_in_mid_answer_goes_on_with_it(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name knots")
    scene.model.say("The bowline")
    studio.sees("The bowline")
    studio.page.reload()
    studio.sees("The bowline")
    scene.model.say(", the sheet bend")
    studio.sees("The bowline, the sheet bend")
    scene.model.finish()
    studio.idle()
    expect(studio.messages).to_have_count(2)


def test_a_dropped_connection_misses_nothing(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.drop_connections()
    studio.say("Name knots")
    scene.model.say("The bowline")
    expect(studio.page.locator(".notice")).to_contain_text("Connection lost")
    studio.mend_connections()
    studio.sees("The bowline")
    scene.model.say(" and the hitch")
    studio.sees("The bowline and the hitch")
    scene.model.finish()
    studio.idle()
    expect(studio.page.locator(".notice")).to_have_count(0)


def test_a_connection_that_breaks_in_mid_answer_goes_on_where_it_was(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name knots")
    scene.model.say("The bowline")
    studio.sees("The bowline")
    studio.drop_connections()
    scene.cut_streams()
    expect(studio.page.locator(".notice")).to_contain_text("Connection lost")
    scene.model.say(" and the hitch")
    studio.mend_connections()
    studio.sees("The bowline and the hitch")
    scene.model.finish()
    studio.idle()
    expect(studio.messages).to_have_count(2)


def test_an_answer_that_a_restart_interrupted_is_gone_on_with(
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
    resume = studio.page.locator("#resume")
    expect(resume).to_be_visible()
    with serving(tmp_path / "s.db", models=[model], port=server.port):
        resume.click()
        model.say("The hitch.")
        model.finish()
        studio.hears("The hitch.")
        expect(studio.page.locator(".notice")).to_have_count(0)


def test_what_is_said_just_after_an_answer_ended_is_answered_too(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin("late")
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    studio.sees("The bowline.")
    # The page does not hear of the end.
    studio.drop_connections()
    scene.cut_streams()
    expect(studio.page.locator(".notice")).to_contain_text("Connection lost")
    scene.model.finish()
    all_events(scene.server, "/api/sessions/late/branches/main/events")
    studio.say("And a bend")
    scene.model.say("The sheet bend.")
    studio.mend_connections()
    studio.sees("And a bend")
    scene.model.finish()
    studio.hears("The sheet bend.")
    expect(studio.messages).to_have_count(4)


def test_a_tool_approved_at_once_is_seen_to_its_end(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    last_page = "**/messages?limit=60"
    held: list[Route] = []
    studio.hold(last_page, held)
    studio.say("Note: buy rope")
    with studio.page.expect_request(last_page):
        scene.model.call("note", '{"text": "buy rope"}', "call_1")
    # The page still looks at what the first half of the run has left.
    studio.page.get_by_role("button", name="Approve").click()
    scene.model.say("Done.")
    assert held
    studio.page.unroute(last_page)  # which lets go of what was held
    scene.model.finish()
    studio.hears("Done.")


def test_a_text_is_said_once_though_nobody_heard_that_it_was(
    scene: Scene, open_studio: OpenStudio
) -> None:
    def lose(route: Route) -> None:
        route.fetch()
        route.abort("connectionreset")

    studio = open_studio(scene.server)
    studio.expected_refusals = 1
    studio.begin("lost")
    studio.page.route("**/runs", lose, times=1)
    with studio.page.expect_event("requestfailed", lambda one: one.url.endswith("/runs")):
        studio.say("Name a knot")
    expect(studio.page.locator(".toast.failed").last).to_contain_text("cannot be reached")
    scene.model.say("The bowline.")
    scene.model.finish()
    all_events(scene.server, "/api/sessions/lost/branches/main/events")
    expect(studio.page.locator("#say")).to_have_value("Name a knot")
    studio.page.locator("#say").press("Enter")
    studio.sees("The bowline.")
    expect(studio.messages).to_have_count(2)
    expect(studio.page.locator("#say")).to_have_value("")


def test_a_conversation_stays_in_sight_when_the_server_does_not_answer(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    session = re.compile(r"/api/sessions/[0-9a-f-]{36}$")
    studio.page.route(session, lambda route: route.abort())
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    with studio.page.expect_event("requestfailed", lambda one: bool(session.search(one.url))):
        scene.model.finish()
    expect(studio.page.locator(".toast.failed").last).to_contain_text("cannot be reached")
    studio.hears("The bowline.")
    studio.page.unroute(session)
    # What could not be read at first is read when the server is back.
    where = studio.page.url.partition("/#")[2]
    studio.page.route("**/messages?*", lambda route: route.abort(), times=1)
    studio.go("#/")
    studio.page.locator(".welcome").wait_for()
    studio.go(f"#{where}")
    studio.sees("The bowline.")


def test_a_question_without_an_answer_can_be_asked_again(
    tmp_path: Path, open_studio: OpenStudio
) -> None:
    model = ScriptedModel([ModelError("It is down.", kind="bad_request"), "Here I am."])
    with serving(tmp_path / "s.db", models=[model]) as server:
        studio = open_studio(server)
        studio.begin()
        studio.say("Hello?")
        expect(studio.page.locator(".notice.error")).to_contain_text("It is down.")
        studio.page.locator("#answer").click()
        studio.hears("Here I am.")
        expect(studio.page.locator(".notice")).to_have_count(0)
        expect(studio.messages).to_have_count(2)


def test_what_somebody_else_decided_is_seen_when_it_is_decided_again(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.expected_refusals = 1
    studio.begin("both")
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    approve = studio.page.get_by_role("button", name="Approve")
    expect(approve).to_be_visible()
    studio.idle()
    branch = "/api/sessions/both/branches/main"
    [call] = scene.server.get(f"{branch}/waiting").json()["waiting"]
    given = {"approve": False, "message": "not now"}
    scene.server.post(f"{branch}/approvals/{call['call']['call_id']}", given)
    scene.model.say("As you like.")
    approve.click()
    expect(approve).to_have_count(0)
    scene.model.finish()
    studio.hears("As you like.")


@pytest.mark.parametrize("deleted", ["branch", "session"])
def test_a_conversation_that_is_deleted_elsewhere_in_mid_answer_says_so(
    scene: Scene, open_studio: OpenStudio, deleted: str
) -> None:
    studio = open_studio(scene.server)
    studio.expected_refusals = 10
    studio.begin(f"gone {deleted}")
    session = f"/api/sessions/gone {deleted}"
    scene.server.post(f"{session}/branches/main/fork", {"name": "other"})
    studio.say("Name a knot")
    scene.model.say("The bowline")
    studio.sees("The bowline")
    gone = session if deleted == "session" else f"{session}/branches/main"
    assert scene.server.delete(gone).status_code == 204
    scene.model.forget()
    expect(studio.page.locator("#stop")).to_have_count(0)
    told = studio.page.locator(".notice.error, .toast.failed, [role=alert]").first
    if deleted == "session":
        expect(told).to_contain_text("may have been deleted")
    else:
        studio.is_on("other")
    expect(studio.page.locator("body")).not_to_contain_text(ENGINE_WORDS)
