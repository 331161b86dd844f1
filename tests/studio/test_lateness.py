"""When the server is slow: an old answer never hides what is newer, and nothing written is lost."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from sennit.server.http.tokens import add_token, new_token
from tests.http_server import serving
from tests.studio.conftest import OpenStudio, Scene
from tests.studio.pages import FRAMES, Studio

BRANCH = re.compile(r"/branches/[0-9a-f-]{36}$")
LAST_PAGE = re.compile(r"/messages\?limit=60$")


class Late:
    """One answer of the server that is on its way until `arrive`."""

    def __init__(self, page: Page, address: re.Pattern[str]) -> None:
        self._held: list[tuple[Route, APIResponse]] = []
        page.route(address, lambda route: self._held.append((route, route.fetch())), times=1)

    def arrive(self) -> None:
        [(route, answer)] = self._held
        route.fulfill(response=answer)


def looks_again(studio: Studio) -> None:
    """Come back to the tab, which then loads what it shows once more."""
    studio.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def test_a_call_is_not_shown_before_it_is_known_to_wait(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    studio.page.locator(".card.asks").wait_for()
    studio.idle()
    studio.hold("**/waiting", [])
    with (
        studio.page.expect_request("**/waiting"),
        studio.page.expect_response(LAST_PAGE),
    ):
        studio.page.reload()
    studio.page.evaluate(FRAMES)
    expect(studio.messages).to_have_count(0)
    studio.page.unroute("**/waiting")  # which lets go of what was held
    studio.messages.first.wait_for()
    assert studio.page.locator(".card.asks").count() == 1


@pytest.mark.parametrize("address", [BRANCH, LAST_PAGE], ids=["branch", "messages"])
def test_what_was_asked_before_a_run_hides_nothing_of_it(
    scene: Scene, open_studio: OpenStudio, address: re.Pattern[str]
) -> None:
    studio = open_studio(scene.server)
    with studio.page.expect_response("**/labels?*"):  # the last of what a new session asks for
        studio.begin()
    late = Late(studio.page, address)
    with studio.page.expect_request(address):
        looks_again(studio)
    studio.say("Note: buy rope")
    scene.model.call("note", '{"text": "buy rope"}', "call_1")
    studio.page.locator(".card.asks").wait_for()
    studio.idle()
    with studio.page.expect_response("**/labels?*"):
        late.arrive()
    studio.page.evaluate(FRAMES)
    expect(studio.page.locator(".card.asks")).to_be_visible()
    expect(studio.messages).to_have_count(2)


def test_what_is_written_while_a_text_is_sent_in_vain_stays_with_it(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    held: list[Route] = []
    studio.hold("**/runs", held)
    with studio.page.expect_request("**/runs"):
        studio.say("Name a knot")
    field = studio.page.locator("#say")
    expect(field).to_have_value("")
    field.fill("And a bend")
    held[0].abort("connectionreset")
    expect(field).to_have_value("Name a knot\nAnd a bend")
    studio.page.unroute("**/runs")
    field.fill("")


def test_an_edit_that_was_not_taken_can_be_sent_again(
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
    field.fill("Name a bend")
    held: list[Route] = []
    studio.hold("**/edit", held)
    with studio.page.expect_request("**/edit"):
        field.press("Enter")
    field.press("Enter")  # which sends it no second time
    studio.page.evaluate(FRAMES)
    [edit] = held
    edit.abort("connectionreset")
    expect(studio.page.locator(".toast.failed").last).to_contain_text("cannot be reached")
    expect(field).to_have_value("Name a bend")
    studio.page.unroute("**/edit")
    field.press("Enter")
    scene.model.say("The sheet bend.")
    scene.model.finish()
    studio.hears("The sheet bend.")
    studio.is_on("main_fork_1")


def test_a_retry_that_is_pressed_twice_makes_one_branch(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    scene.model.finish()
    studio.hears("The bowline.")
    held: list[Route] = []
    studio.hold("**/regenerate", held)
    with studio.page.expect_request("**/regenerate"):
        studio.do("The bowline.", "Retry on a new branch")
    retry_button = studio.message("The bowline.").get_by_role("button", name="Retry")
    expect(retry_button).to_be_disabled()
    retry_button.click(force=True)
    studio.page.evaluate(FRAMES)
    [retry] = held
    retry.continue_()
    studio.page.unroute("**/regenerate")
    scene.model.say("The hitch.")
    scene.model.finish()
    studio.hears("The hitch.")
    studio.is_on("main_fork_1")
    expect(studio.page.locator("#branch option")).to_have_count(2)


def test_the_chosen_model_is_asked_before_it_is_known_which_there_are(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server)
    studio.page.get_by_role("combobox", name="Model").select_option("talker")
    studio.hold("**/api/models", [])
    studio.page.reload()
    studio.say("Hello")
    studio.hears("You said: Hello")
    studio.page.unroute("**/api/models")  # which lets go of what was held
    chosen = studio.page.get_by_role("combobox", name="Model")
    expect(chosen).to_have_value("talker")
    chosen.select_option("stepped")


def test_who_writes_elsewhere_is_not_led_away(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    studio.begin()
    studio.hold(LAST_PAGE, [])
    with studio.page.expect_request(LAST_PAGE):
        studio.page.reload()
    search = studio.page.locator("#search")
    search.focus()
    studio.page.unroute(LAST_PAGE)  # which lets go of what was held
    studio.page.locator(".hello").wait_for()
    studio.page.evaluate(FRAMES)
    expect(search).to_be_focused()


def test_a_refusal_from_before_the_login_asks_for_no_second_one(
    tmp_path: Path, open_studio: OpenStudio
) -> None:
    tokens = tmp_path / "tokens.json"
    token, line = new_token(user="ann")
    add_token(tokens, line)
    with serving(tmp_path / "s.db", tokens=tokens) as server:
        studio = open_studio(server)
        studio.expected_refusals = 20
        studio.hold("**/api/models", [])
        studio.page.reload()
        field = studio.page.get_by_label("Token")
        field.fill(token)
        field.press("Enter")
        studio.page.locator("#new").wait_for()
        with studio.page.expect_response(lambda one: one.status == 401):
            studio.page.unroute("**/api/models")  # which lets go of what was held
        studio.page.evaluate(FRAMES)
        studio.begin("mine")


# Press a key as soon as anything is drawn.
_EAGER = """new MutationObserver((_, watch) => {
  if (!document.querySelector('#main')) return;
  watch.disconnect();
  document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '?', bubbles: true }));
  location.hash = '#/usage';
}).observe(document, { childList: true, subtree: true });"""


def test_the_page_answers_as_soon_as_it_is_seen(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server, locale="en-GB")  # in a tab of its own
    studio.page.add_init_script(_EAGER)
    studio.page.reload()
    expect(studio.page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    expect(studio.page.get_by_role("heading", name="Usage")).to_be_visible()
