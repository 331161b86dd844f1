"""A Chromium for the tests of the studio: one for all of them, and in it a tab for each server.

Playwright keeps an event loop running while it is there, so it ends with this package: the next one
may be about asyncio. Tests that look at the same server share a tab and go from place to place in
it, as a person does. Whatever a page does, it must not break its own rules; each test ends by
looking.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from sennit import Tool
from tests.browsers import ARTIFACTS, CHROMIUM, MISSING
from tests.http_server import Running, Talker, serving
from tests.studio.pages import Studio
from tests.studio.stepped import SteppedModel

OpenStudio = Callable[..., Studio]


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    # Chromium's own sandbox does not work for root, which containers run as.
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=as_root)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def tabs(browser: Browser) -> Iterator[dict[Hashable, Studio]]:
    """The tabs of a module's tests: loading the page anew is what takes longest in them."""
    opened: dict[Hashable, Studio] = {}
    yield opened
    for studio in opened.values():
        studio.page.context.close()


@pytest.fixture
def open_studio(
    browser: Browser, tabs: dict[Hashable, Studio], request: pytest.FixtureRequest
) -> Iterator[OpenStudio]:
    """Look at the studio of a server; `color_scheme`, `width` and `height` say with what."""
    used: list[Studio] = []
    ARTIFACTS.mkdir(parents=True, exist_ok=True)

    def open_(server: Running, where: str = "#/", **looks: Any) -> Studio:
        tab = (server.url, *sorted(looks.items()))
        if tab not in tabs:
            tabs[tab] = Studio(_page(browser, **looks), server.url)
        studio = tabs[tab]
        studio.begin_test(ARTIFACTS / request.node.name)
        used.append(studio)
        studio.go(where)
        return studio

    yield open_
    for studio in used:
        studio.shot("end")
        broken = studio.broken_rules()
        assert not broken, broken


def _page(browser: Browser, *, width: int = 1280, height: int = 800, **looks: Any) -> Page:
    options = {"color_scheme": "light", "reduced_motion": "reduce", **looks}
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    return context.new_page()


def note(text: str) -> str:
    """Write something down."""
    return f"noted: {text}"


class Scene:
    """A server that talks with a model which says what the test says."""

    def __init__(self, server: Running, model: SteppedModel) -> None:
        self.server, self.model = server, model

    def cut_streams(self) -> None:
        """End all connections over which events come; the model was asked before."""
        for stream in list(self.server.state.streams):
            self.model.loop.call_soon_threadsafe(stream.stop)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    model = SteppedModel()
    tools = [Tool(note, needs_approval=True)]
    store = tmp_path_factory.mktemp("talking") / "s.db"
    with serving(store, models=[model, Talker()], tools=tools) as server:
        yield Scene(server, model)
