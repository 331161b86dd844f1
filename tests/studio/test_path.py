"""One person, one afternoon: everything the studio is for, in the order in which it is met."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from sennit import Tool
from tests.http_server import serving
from tests.studio.conftest import OpenStudio
from tests.studio.stepped import SteppedModel


def weigh(what: str) -> str:
    """Weigh something."""
    return f"{what}: 640 g"


def test_the_whole_path_of_a_person(tmp_path: Path, open_studio: OpenStudio) -> None:
    model = SteppedModel()
    tools = [Tool(weigh, needs_approval=True)]
    with serving(tmp_path / "s.db", models=[model], tools=tools) as server:
        studio = open_studio(server)

        def answered(*pieces: str) -> None:
            for piece in pieces:
                model.say(piece)
            model.finish()
            studio.hears("".join(pieces))

        # Talk: an answer comes piece by piece, the next is stopped.
        studio.begin("a week away")
        studio.say("I prefer quiet places. Where should I go?")
        model.say("To the ")
        studio.sees("To the")
        answered("islands.")
        studio.say("Tell me everything about them")
        model.say("They were formed")
        studio.sees("They were formed")
        studio.page.locator("#stop").click()
        studio.idle()
        model.forget()

        # Go other ways: fork, edit, retry; and look at two of them side by side.
        studio.do("To the islands.", "Fork after this message")
        studio.page.get_by_label("Name of the new branch").fill("packing")
        studio.page.keyboard.press("Enter")
        studio.is_on("packing")
        studio.say("What is my bag?")
        answered("Light.")
        studio.do("What is my bag?", "Edit on a new branch")
        studio.page.get_by_label("New text").fill("How heavy is my bag?")
        studio.page.keyboard.press("Enter")
        model.call("weigh", '{"what": "bag"}', "call_1")

        # A tool waits for a person, also over a reload.
        studio.page.locator(".card.asks").wait_for()
        studio.page.reload()
        studio.page.get_by_role("button", name="Approve").click()
        expect(studio.page.locator(".card.outcome")).to_contain_text("bag: 640 g")
        model.say("640 ")
        studio.sees("640")
        studio.page.reload()  # in mid-answer
        studio.sees("640")
        answered("grams.")
        studio.sees("640 grams.")
        studio.do("grams.", "Retry on a new branch")
        answered("Not much.")
        studio.page.locator("#tab-compare").click()
        expect(studio.page.locator(".column").nth(0)).to_contain_text("Not much.")
        expect(studio.page.locator(".column").nth(1)).to_contain_text("grams.")
        studio.page.locator("#tab-tree").click()
        expect(studio.page.locator("svg a.head")).to_have_count(4)
        studio.shot("tree")

        # Remember it; find the memory, and the words it rests on.
        studio.page.locator("#remember").click()
        studio.page.locator(".memory-entry", has_text="quiet places").first.click()
        studio.page.get_by_role("link", name="Show the message").first.click()
        expect(studio.page.locator("article.selected")).to_contain_text("I prefer quiet places")
