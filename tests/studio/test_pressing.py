"""A button that is pressed while the page changes below the pointer does what it says."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.studio.conftest import OpenStudio, Scene
from tests.studio.pages import FRAMES, Studio

_LINES = "\n\n".join(["A line of many."] * 40)

# Where a message stands in the list when that is scrolled to a place, wherever that is.
_PLACE = f"""async (top) => {{
  const box = document.querySelector('.list');
  box.scrollTop = top;
  await ({FRAMES})();
  const head = document.querySelector('[data-index="1"] .message-head');
  const first = document.querySelector('[data-index="0"]');
  return [head.getBoundingClientRect().top + box.scrollTop, first === null];
}}"""

# How far the end of the list is below what is in sight of it.
_END = """() => {
  const box = document.querySelector('.list');
  const last = [...document.querySelectorAll('.row')].at(-1);
  return Math.round(last.getBoundingClientRect().bottom - box.getBoundingClientRect().bottom);
}"""


def with_messages(scene: Scene, open_studio: OpenStudio, *texts: str) -> Studio:
    """A branch on which these were said in turn."""
    session = scene.server.post("/api/sessions").json()["id"]
    branches = f"/api/sessions/{session}/branches"
    for number, text in enumerate(texts):
        said = {"role": ("user", "assistant")[number % 2], "text": text}
        scene.server.post(f"{branches}/main/messages", said)
    studio = open_studio(scene.server, f"#/s/{session}")
    studio.messages.last.wait_for()
    return studio


def test_a_message_stays_in_its_place_when_those_above_it_leave_the_page(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = with_messages(scene, open_studio, _LINES, _LINES)
    places = [studio.page.evaluate(_PLACE, top) for top in (1200, 3000, 1200)]
    assert [left for _, left in places] == [False, True, False]
    assert len({round(place) for place, _ in places}) == 1, places


def say_more(scene: Scene, studio: Studio) -> None:
    scene.model.say(f"\n\n{_LINES}\n\nAll.")
    expect(studio.answers.last).to_contain_text("All.")


def end(scene: Scene, studio: Studio) -> None:
    scene.model.finish()
    studio.idle()


def stop(scene: Scene, studio: Studio) -> None:
    where = studio.page.url.rpartition("/")[2]
    scene.server.post(f"/api/sessions/{where}/branches/main/cancel")
    studio.idle()
    scene.model.forget()


@pytest.mark.parametrize("meanwhile", [say_more, end, stop])
def test_a_press_counts_though_the_answer_moves_on_before_the_release(
    scene: Scene, open_studio: OpenStudio, meanwhile: Callable[[Scene, Studio], None]
) -> None:
    texts = [f"Knot {number}." for number in range(20)]
    studio = with_messages(scene, open_studio, *texts)
    studio.say("Name a knot")
    scene.model.say("The bowline.")
    studio.sees("The bowline.")
    studio.page.evaluate(FRAMES)
    eye = studio.message("Knot 19.").get_by_role("button", name="Show the prompt")
    box = eye.bounding_box()
    assert box is not None
    studio.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    studio.page.mouse.down()
    meanwhile(scene, studio)
    studio.page.evaluate(FRAMES)
    assert eye.bounding_box() == box
    studio.page.mouse.up()
    panel = studio.page.get_by_role("complementary", name="Prompt")
    expect(panel.locator(".part")).not_to_have_count(0)
    # Then the end is in sight again.
    studio.page.evaluate(FRAMES)
    assert studio.page.evaluate(_END) <= 1
    expect(studio.page.locator(".to-end")).to_have_count(0)
    if meanwhile is say_more:
        end(scene, studio)
