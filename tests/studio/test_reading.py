"""Reading in a browser: long sessions, the picture of branches, two side by side, any screen."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from struct import pack
from uuid import UUID
from zlib import compress, crc32

import pytest
from playwright.sync_api import Route, expect

import sennit
from sennit import (
    AssistantResponseContent,
    FilePart,
    ImagePart,
    InstructionContent,
    Message,
    Session,
    TextPart,
    ToolPart,
)
from sennit.messages.parts import Part
from tests.http_server import Running, serving
from tests.studio.conftest import OpenStudio
from tests.studio.pages import FRAMES

LONG = 5000
BRANCHES = 500


class Scene:
    """A server and the sessions it has."""

    def __init__(self, server: Running, ids: dict[str, UUID]) -> None:
        self.server, self.ids = server, ids

    def link(self, key: str, *more: str) -> str:
        return "/".join((f"#/s/{self.ids[key]}", *more))


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    path = tmp_path_factory.mktemp("studio") / "s.db"
    with sennit.open(path, durability="normal") as client:
        ids = {
            "long": _long(client.session("long")),
            "knots": _knots(client.session("knots")),
            "named": _named(client.session("named")),
            "few": _braid(client.session("few"), 50),
            "many": _braid(client.session("many"), BRANCHES),
            "pictures": _pictures(client.session("pictures")),
        }
    with serving(path) as server:
        yield Scene(server, ids)


def _long(session: Session) -> UUID:
    branch = session.create_branch("main")
    session.add_messages([_said(number) for number in range(LONG)], branches=branch)
    return session.id


def _pictures(session: Session) -> UUID:
    rows = b"".join(b"\0" + random.Random(row).randbytes(9) for row in range(400))
    chunks = [(b"IHDR", pack(">IIBBBBB", 3, 400, 8, 2, 0, 0, 0)), (b"IDAT", compress(rows))]
    small = b"\x89PNG\r\n\x1a\n" + b"".join(
        pack(">I", len(data)) + name + data + pack(">I", crc32(name + data))
        for name, data in (*chunks, (b"IEND", b""))
    )
    pictures: list[Part] = [ImagePart(small), ImagePart(b"\x89PNG\r\n\x1a\n" + bytes(6_000_000))]
    session.add_message("user", [TextPart("Which knot?"), *pictures])
    session.add_message("user", [FilePart(b"%PDF-1.7 " + bytes(3_991), "a.pdf")])
    return session.id


def _said(number: int) -> Message:
    words = f"Message {number}. " + "word " * (number * 7 % 60)
    if number % 2:
        return Message(AssistantResponseContent(words))
    return Message(InstructionContent(instruction=words))


def _knots(session: Session) -> UUID:
    main = session.create_branch("main")
    session.add_message("user", "Name a knot", branches=main)
    session.add_message("assistant", "The **bowline**.", branches=main)
    session.add_message("user", "Another", branches=main)
    looked_up = ToolPart("lookup", {"name": "sheet bend"}, output={"joins": ["two ropes"] * 40})
    session.add_message("assistant", [looked_up, TextPart("The sheet bend.")], branches=main)
    softer = main.fork(at=1, name="softer")
    session.add_message("user", "A softer one", branches=softer)
    session.add_message(
        "assistant", "The slip knot.\n\n```python\nprint('loop')\n```", branches=softer
    )
    return session.id


def _named(session: Session) -> UUID:
    main = session.create_branch("main")
    session.add_message("user", "Name a knot", branches=main)
    main.fork(name="a branch with a name that takes more room than a phone has")
    return session.id


def _braid(session: Session, count: int) -> UUID:
    chosen = random.Random(4)
    branches = [session.create_branch("main")]
    for number in range(20):
        session.add_message("user", f"m{number}", branches=branches[0])
    for number in range(count - 1):
        parent = chosen.choice(branches[-40:] + branches[:4])
        fork = parent.fork(at=chosen.randrange(len(parent)), name=f"idea {number}")
        session.add_message("user", f"idea {number}", branches=fork)
        branches.append(fork)
    return session.id


# Resolves when a frame has been painted: by then rows that turned out taller are where they belong.
_FRAME = "() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"

_WALK = (
    f"""async ({{ from, to, by }}) => {{
  const frame = {_FRAME};
"""
    + """
  const box = document.querySelector('.list');
  const seen = new Set();
  let [most, gaps, top] = [0, 0, from * box.scrollHeight];
  for (;;) {
    box.scrollTop = top;
    do await frame(); while (document.querySelector('.message.loading'));
    await frame();
    const rows = [...document.querySelectorAll('.row')];
    const { top: above, bottom: below } = box.getBoundingClientRect();
    const covered = rows[0].getBoundingClientRect().top <= above + 1
      && rows.at(-1).getBoundingClientRect().bottom >= below - 1;
    const places = rows.map((row) => Number(row.dataset.index));
    if (!covered || places.some((place, nth) => place !== places[0] + nth)) gaps += 1;
    places.forEach((place) => seen.add(place));
    most = Math.max(most, document.querySelectorAll('.list *').length);
    const end = box.scrollTop + box.clientHeight >= box.scrollHeight - 2;
    if (end || box.scrollTop > to * box.scrollHeight) return { seen: [...seen], most, gaps };
    top = box.scrollTop + by * (by < 1 ? box.scrollHeight : 1);
  }
}"""
)


def test_any_place_of_a_long_session_is_reached_with_few_nodes(
    scene: Scene, open_studio: OpenStudio, record_property: Callable[[str, object], None]
) -> None:
    studio = open_studio(scene.server, scene.link("long"))
    studio.sees(f"Message {LONG - 1}.")
    leaps = studio.page.evaluate(_WALK, {"from": 0, "to": 1, "by": 0.04})
    assert leaps["gaps"] == 0
    assert {0, LONG - 1} <= set(leaps["seen"])
    steps = studio.page.evaluate(_WALK, {"from": 0.5, "to": 0.53, "by": 900})
    assert steps["gaps"] == 0
    assert len(steps["seen"]) > LONG * 0.03
    assert sorted(steps["seen"]) == list(range(min(steps["seen"]), max(steps["seen"]) + 1))
    most = max(leaps["most"], steps["most"])
    record_property("counted", ["a long session in the studio", {"nodes at most": most}])
    assert most < 1500


def test_an_edit_is_there_when_its_message_comes_back_into_sight(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("long") + "?at=2500")
    studio.do("Message 2500.", "Edit on a new branch")
    field = studio.page.get_by_label("New text")
    field.fill("Something else")
    studio.page.locator(".list").evaluate("(box) => { box.scrollTop = 0; }")
    expect(field).to_have_count(0)
    studio.page.goto(f"{studio.url}/{scene.link('long')}?at=2501")  # without loading it anew
    expect(field).to_have_value("Something else")


@pytest.mark.slow
def test_every_message_of_a_long_session_is_seen_on_the_way(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("long"))
    studio.sees(f"Message {LONG - 1}.")
    walked = studio.page.evaluate(_WALK, {"from": 0, "to": 1, "by": 1200})
    assert walked["gaps"] == 0
    assert len(walked["seen"]) == LONG


def test_scrolling_up_keeps_what_is_read_in_its_place(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("long") + "?at=2500")
    studio.sees("Message 2500.")
    moved = studio.page.evaluate(
        f"""async () => {{
          const frame = {_FRAME};"""
        """
          const box = document.querySelector('.list');
          const top = (row) => row.getBoundingClientRect().top;
          let worst = 0;
          for (let step = 0; step < 30; step += 1) {
            const rows = [...document.querySelectorAll('.row')];
            const row = rows.find((one) => top(one) > top(box));
            const before = top(row);
            box.scrollTop -= 120;
            for (let count = 0; count < 3; count += 1) await frame();
            if (row.isConnected) worst = Math.max(worst, Math.abs(top(row) - before - 120));
          }
          return worst;
        }"""
    )
    assert moved <= 2


def test_a_button_leads_to_the_end_and_goes_when_it_is_there(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("long") + "?at=2500")
    studio.sees("Message 2500.")
    button = studio.page.get_by_role("button", name="Scroll to the end")
    button.click()
    studio.sees(f"Message {LONG - 1}.")
    expect(button).to_have_count(0)


def test_five_hundred_branches_are_drawn_quickly(
    scene: Scene, open_studio: OpenStudio, record_property: Callable[[str, object], None]
) -> None:
    def drawn(key: str) -> float:
        studio = open_studio(scene.server, scene.link(key, "main", "tree"))
        heads = studio.page.locator("svg a.head")
        count = BRANCHES if key == "many" else 50
        expect(heads).to_have_count(count)
        studio.page.evaluate("performance.clearMeasures()")
        for _ in range(3):
            studio.page.locator("#tab-chat").click()
            studio.page.locator("#say").wait_for()
            studio.page.locator("#tab-tree").click()
            expect(heads).to_have_count(count)
        studio.shot(key)
        # What else the machine does can only add to it.
        return studio.page.evaluate(
            "Math.min(...performance.getEntriesByName('sennit:tree').map((one) => one.duration))"
        )

    few, many = drawn("few"), drawn("many")
    counted = {"ms for 50 branches": round(few), f"ms for {BRANCHES}": round(many)}
    record_property("counted", ["the picture of branches", counted])
    # Ten times the branches: neither quadratic nor noticeable.
    assert many < max(30 * few, 300)


def test_a_name_in_the_picture_leads_to_its_branch_and_a_fork_point_to_its_message(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("knots", "main", "tree"))
    studio.page.get_by_role("link", name="softer, 4 messages").click()
    studio.is_on("softer")
    studio.sees("The slip knot.")
    studio.page.locator("#tab-tree").click()
    studio.page.get_by_role("link", name="Fork point after message 2").click()
    expect(studio.page.locator("article.selected")).to_contain_text("The bowline.")


def test_arrows_at_a_message_lead_to_its_other_versions(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("knots", "main"))
    studio.sees("The sheet bend.")
    studio.message("Another").get_by_role("button", name="Next version").click()
    studio.is_on("softer")
    expect(studio.page.locator("article.selected")).to_contain_text("A softer one")
    studio.message("A softer one").get_by_role("button", name="Previous version").click()
    studio.is_on("main")


def test_two_branches_stand_side_by_side_from_what_they_share(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("knots", "softer", "compare"))
    expect(studio.page.locator(".shared")).to_contain_text("They share 2 messages")
    expect(studio.page.locator(".shared")).to_contain_text("The **bowline**.")
    left, right = studio.page.locator(".column").all()
    expect(left).to_contain_text("The slip knot.")
    expect(right).to_contain_text("The sheet bend.")
    expect(left).not_to_contain_text("bowline")
    studio.page.get_by_role("button", name="Swap sides").click()
    expect(studio.page.locator(".column").first).to_contain_text("The sheet bend.")


def test_markdown_and_code_are_drawn(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server, scene.link("knots", "softer"))
    expect(studio.message("bowline").locator("strong")).to_have_text("bowline")
    code = studio.message("The slip knot.").locator(".code")
    expect(code.locator(".code-bar")).to_contain_text("python")
    expect(code.locator(".t-string")).to_have_text("'loop'")


def test_all_is_done_with_keys_alone(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server, scene.link("knots", "main"))
    studio.sees("The sheet bend.")
    press = studio.page.keyboard.press
    press("Escape")
    press("k")
    selected = studio.page.locator("article.selected")
    expect(selected).to_contain_text("The sheet bend.")
    for _ in range(3):
        press("k")
    expect(selected).to_contain_text("Another")
    press("]")
    studio.is_on("softer")
    press("t")
    expect(studio.page.locator("svg a.head")).to_have_count(2)
    press("b")
    expect(studio.page.locator(".column")).to_have_count(2)
    press("c")
    studio.sees("The slip knot.")
    press("i")
    expect(studio.page.locator("#say")).to_be_focused()
    press("t")  # a letter in a field is text
    expect(studio.page.locator("#say")).to_have_value("t")
    press("Escape")
    press("?")
    dialog = studio.page.get_by_role("dialog", name="Shortcuts")
    expect(dialog).to_be_visible()
    press("Escape")
    expect(studio.page.locator("dialog")).to_have_count(0)
    press("/")
    expect(studio.page.locator("#search")).to_be_focused()


def test_on_a_phone_nothing_is_wider_than_the_screen(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server, scene.link("knots", "softer"), width=360, height=740)
    studio.sees("The slip knot.")
    for view, sign in {"chat": ".message", "tree": "svg a.head", "compare": ".column"}.items():
        studio.page.locator(f"#tab-{view}").click()
        studio.page.locator(sign).first.wait_for()
        studio.shot(view)
        assert studio.too_wide() == []
    studio.go(scene.link("named", "main"))
    studio.sees("Name a knot")
    assert studio.too_wide() == []
    studio.page.get_by_role("button", name="Sessions").click()
    expect(studio.page.get_by_role("link", name="long")).to_be_visible()
    studio.shot("side")


def test_dark_or_light_is_as_the_system_says_until_someone_chooses(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("knots"), color_scheme="dark")
    studio.sees("The sheet bend.")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = studio.page.evaluate(paper)
    studio.page.locator("#theme").click()
    expect(studio.page.locator("html")).to_have_attribute("data-theme", "light")
    light = studio.page.evaluate(paper)
    assert dark != light
    studio.page.reload()
    studio.sees("The sheet bend.")
    assert studio.page.evaluate(paper) == light


def test_the_first_paint_does_not_wait_for_the_data(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server)
    held: list[Route] = []
    studio.hold("**/api/**", held)
    with studio.page.expect_request("**/api/sessions*"):
        studio.page.reload()
    studio.page.get_by_role("heading", name="Conversations that branch").wait_for()
    painted = "performance.getEntriesByName('first-contentful-paint').length"
    studio.page.wait_for_function(f"() => {painted}")
    studio.page.unroute("**/api/**")  # which lets go of what was held
    expect(studio.page.get_by_role("link", name="long")).to_be_visible()


_NAMELESS = """() => [...document.querySelectorAll('button, a, input, select, textarea, [role]')]
  .filter((one) => one.checkVisibility() && !one.closest('[aria-hidden="true"]'))
  .filter((one) => !['list', 'listitem', 'status', 'none'].includes(one.getAttribute('role')))
  .filter((one) => !(one.ariaLabel || one.textContent.trim() || one.labels?.length))
  .map((one) => one.outerHTML.slice(0, 120))"""

# The least contrast of text with what is behind it, over all texts in sight.
_CONTRAST = """() => {
  const part = (value) => (value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (rgb) => rgb.map((value) => part(value / 255))
    .reduce((sum, value, nth) => sum + value * [0.2126, 0.7152, 0.0722][nth], 0);
  const read = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const behind = (one) => {
    const [r, g, b, a = 1] = read(getComputedStyle(one).backgroundColor);
    return a > 0.9 || !one.parentElement ? [r, g, b] : behind(one.parentElement);
  };
  const found = [...document.querySelectorAll('body *')]
    .filter((one) => one.checkVisibility({ opacityProperty: true }) && !one.closest(':disabled'))
    .filter((one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .filter((one) => !one.closest('svg'))
    .map((one) => {
      const [a, b] = [light(read(getComputedStyle(one).color).slice(0, 3)), light(behind(one))];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      return [ratio, `${one.className} ${one.textContent.trim().slice(0, 40)}`];
    });
  return found.sort(([a], [b]) => a - b)[0];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everything_has_a_name_and_can_be_read(
    scene: Scene, open_studio: OpenStudio, scheme: str
) -> None:
    studio = open_studio(scene.server, color_scheme=scheme)
    shown = {
        scene.link("knots", "softer"): ".message.answer",
        # Each branch has a colour of its own, in turn: there are eight.
        **{
            scene.link("few", f"idea {number}", "compare"): f".column[aria-label='idea {number}']"
            for number in range(8)
        },
        scene.link("knots", "softer", "tree"): "svg a.head",
        "#/memory": ".memory-list .empty",
        "#/usage": ".page .empty",
    }
    for where, sign in shown.items():
        studio.go(where)
        studio.page.locator(sign).first.wait_for()
        assert studio.page.evaluate(_NAMELESS) == []
        ratio, text = studio.page.evaluate(_CONTRAST)
        assert ratio >= 4.5, (where, text, ratio)


def test_a_slow_answer_is_not_drawn_over_a_newer_one(scene: Scene, open_studio: OpenStudio) -> None:
    studio = open_studio(scene.server, "#/usage")
    studio.page.locator(".page .empty").wait_for()
    held: list[Route] = []
    studio.hold("**/api/usage?days=7", held)
    with studio.page.expect_request("**/api/usage?days=7"):
        studio.page.get_by_role("button", name="7 days").click()
    with studio.page.expect_response("**/api/usage?days=90"):
        studio.page.get_by_role("button", name="90 days").click()
    spent = {"turns": 1, "input_tokens": 1, "output_tokens": 1, "cost": 1.0}
    for route in held:
        route.fulfill(
            json={"days": [{"date": "2020-01-01", "model": "m", **spent}], "sessions": []}
        )
    studio.page.unroute("**/api/usage?days=7")
    studio.page.evaluate(FRAMES)
    expect(studio.page.locator(".page")).not_to_contain_text("$1.00")
    expect(studio.page.locator(".empty")).to_contain_text("90 days")


def test_keys_do_nothing_behind_a_window_and_the_focus_comes_back(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, "#/memory")
    button = studio.page.get_by_role("button", name="Shortcuts")
    button.focus()
    studio.page.keyboard.press("Enter")
    dialog = studio.page.get_by_role("dialog", name="Shortcuts")
    dialog.get_by_role("heading").click()  # the focus is on nothing then
    studio.page.keyboard.press("u")
    studio.page.keyboard.press("n")
    expect(dialog).to_be_visible()
    assert studio.page.url.endswith("#/memory")
    studio.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_a_stored_picture_is_shown_and_a_large_one_and_files_are_named(
    scene: Scene, open_studio: OpenStudio
) -> None:
    studio = open_studio(scene.server, scene.link("pictures"))
    shown = studio.page.locator("img.picture-shown")
    expect(shown).to_have_count(1)
    expect(shown).to_have_js_property("naturalWidth", 3)
    expect(studio.page.get_by_text("image/png, 6,000,0")).to_be_visible()
    expect(studio.page.get_by_text("a.pdf: application/pdf, 4,000 bytes")).to_be_visible()
