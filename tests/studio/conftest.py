"""A Chromium for the tests of the studio: one for each module, a new context for each test.

Playwright keeps an event loop running while it is there, so it ends with its module: the next one
may be about asyncio. Whatever a page does, it must not break its own rules; each test ends by
looking.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browsers import ARTIFACTS, CHROMIUM, MISSING
from tests.serving import Running
from tests.studio.pages import Studio

OpenStudio = Callable[..., Studio]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(MISSING)
    # Chromium's own sandbox does not work for root, which containers run as.
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=as_root)
        yield browser
        browser.close()


@pytest.fixture
def open_studio(browser: Browser, request: pytest.FixtureRequest) -> Iterator[OpenStudio]:
    """Open the studio of a server; `scheme`, `width` and `height` say what it is looked at with."""
    opened: list[Studio] = []
    ARTIFACTS.mkdir(parents=True, exist_ok=True)

    def open_(server: Running, where: str = "", **looks: object) -> Studio:
        width, height = looks.pop("width", 1280), looks.pop("height", 800)
        viewport = {"width": width, "height": height}
        options = {"color_scheme": "light", "reduced_motion": "reduce", **looks}
        context = browser.new_context(viewport=viewport, **options)  # pyright: ignore[reportArgumentType]
        studio = Studio(context.new_page(), server.url, ARTIFACTS / request.node.name)
        opened.append(studio)
        studio.go(where)
        return studio

    yield open_
    for studio in opened:
        studio.shot("end")
        broken = studio.broken_rules()
        studio.page.context.close()
        assert not broken, broken
