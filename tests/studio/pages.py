"""The studio as a person uses it: what is seen and done, by the words that stand on the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Dialog, Locator, Page, Request, Route, expect

# How long something may take until it is seen: a machine may have far more to do than it can.
_PATIENCE = 15_000
expect.set_options(timeout=_PATIENCE)

# Whatever would run because of a text sets this, or opens a dialog, or breaks the page's policy.
_WATCH = """
window.__violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.__violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`);
});
"""

# What scrolls sideways though it should not, once the page has settled; code, tables and the
# picture of branches may.
_TOO_WIDE = """async () => {
  const found = () => [...document.querySelectorAll('html, body, main, main *')]
    .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
    .filter((one) => !one.closest('pre, svg, .sr, .tree-scroll, .table-scroll, .prose table'))
    .filter((one) => getComputedStyle(one).textOverflow !== 'ellipsis')
    .map((one) => `${one.tagName}.${one.className} ${one.scrollWidth} > ${one.clientWidth}`);
  for (let frame = 0; frame < 60 && found().length; frame += 1) {
    await new Promise(requestAnimationFrame);
  }
  return found();
}"""

# Time enough for the page to draw what it was told.
FRAMES = """async () => {
  for (let count = 0; count < 10; count += 1) await new Promise(requestAnimationFrame);
}"""

# Words that no person should have to read.
ENGINE_WORDS = re.compile(
    r"MessageRole|[0-9a-f]{8}-[0-9a-f]{4}-|is held by|lease|viking://|\bNone\b"
)


class Studio:
    """One tab."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        page.set_default_timeout(_PATIENCE)
        page.add_init_script(_WATCH)
        page.on("dialog", self._opened)
        page.on("pageerror", lambda error: self._complain("error", str(error)))
        page.on("console", self._heard)
        page.on("request", self._asked)
        page.on("response", self._answered)

    def begin_test(self, shots: Path) -> None:
        """Hold what happens from now on against the test that takes the tab over."""
        self._shots = shots
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.expected_refusals = 0
        """How many answers the server may refuse with an error status."""
        self._refused: list[str] = []

    def _complain(self, kind: str, text: str) -> None:
        self.complaints.append(f"{kind}: {text[:300]}")

    def _opened(self, dialog: Dialog) -> None:
        self._complain("dialog", dialog.message)
        dialog.dismiss()

    def _heard(self, message: Any) -> None:
        # A refused request is no fault of the page; which ones there were is counted apart.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self._complain("console", message.text)

    def _asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def _answered(self, response: Any) -> None:
        # A server that is about to stop says so, and a test may end before the page is answered.
        if response.status >= 400 and response.status != 503:
            self._refused.append(f"{response.status} {response.url}")

    def broken_rules(self) -> list[str]:
        """What went wrong on the page, of whatever kind."""
        found = list(self.complaints)
        found += [f"policy: {one}" for one in self.page.evaluate("window.__violations")]
        if self.page.evaluate("window.pwned !== undefined"):
            found.append("a text was executed")
        found += [f"elsewhere: {url}" for url in self.requests if not self._ours(url)]
        if len(self._refused) > self.expected_refusals:
            found += self._refused
        return found

    def _ours(self, url: str) -> bool:
        return url.startswith((f"{self.url}/", f"blob:{self.url}/", "data:"))

    def go(self, where: str) -> None:
        """Open an address, such as "#/memory"; what is shown already is loaded anew."""
        target = f"{self.url}/{where}"
        shown = self.page.url.partition("?")[0]
        if self.page.url != target:
            self.page.goto(target)
        if shown == target.partition("?")[0]:  # also at another place in it
            self.page.reload()

    def shot(self, name: str) -> None:
        """Keep a picture of the page as it is."""
        safe = re.sub(r"[^\w.-]+", "_", self._shots.name)[:120]
        self.page.screenshot(path=self._shots.with_name(f"{safe}.{name}.png"))

    # What is seen

    @property
    def messages(self) -> Locator:
        """The messages in sight, tool cards included."""
        return self.page.locator(".list article.message:not(.loading)")

    @property
    def answers(self) -> Locator:
        return self.page.locator(".list article.answer")

    def message(self, text: str) -> Locator:
        return self.messages.filter(has_text=text)

    def sees(self, text: str) -> None:
        """Wait until a message says that."""
        expect(self.message(text).first).to_be_visible()

    def is_on(self, branch: str) -> None:
        """Wait until that branch is shown."""
        expect(self.page.locator("#branch option:checked")).to_have_text(branch)

    def idle(self) -> None:
        """Wait until no answer comes any more; that one came must have been seen before."""
        expect(self.page.locator("#stop")).to_have_count(0)
        expect(self.page.locator("article.draft")).to_have_count(0)

    def hears(self, text: str) -> None:
        """Wait until an answer said that, and is over; what was asked may say the same."""
        expect(self.answers.filter(has_text=text).first).to_be_visible()
        self.idle()

    def too_wide(self) -> list[str]:
        """What does not fit the width of the screen."""
        return self.page.evaluate(_TOO_WIDE)

    # What is done

    def begin(self, key: str = "") -> None:
        """Make a session."""
        before = self.page.url
        self.page.locator("#new").click()
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_label("Name").fill(key)
        dialog.get_by_role("button", name="Create").click()
        expect(self.page).not_to_have_url(before)
        self.page.locator(".hello").wait_for()

    def say(self, text: str) -> None:
        field = self.page.locator("#say")
        field.fill(text)
        field.press("Enter")

    def do(self, text: str, deed: str) -> None:
        """Press one of the buttons at a message."""
        message = self.message(text).last
        message.hover()
        message.get_by_role("button", name=deed).click()

    def rename(self, deed: str, name: str, *, was: str) -> None:
        """Give what is shown another name, by a deed of its menu."""
        self.page.locator(".session-head").get_by_role("button", name="More").click()
        self.page.get_by_role("menuitem", name=deed).click()
        dialog = self.page.get_by_role("dialog")
        field = dialog.get_by_label("Name")
        expect(field).to_have_value(was)
        field.fill(name)
        dialog.get_by_role("button", name="Rename").click()
        expect(dialog).to_have_count(0)

    def drop_connections(self) -> None:
        """Let nothing through from now on."""
        self.page.context.route("**/events*", self._drop)

    def mend_connections(self) -> None:
        """Let all through again, and tell the page so, as a browser does."""
        self.page.context.unroute_all(behavior="ignoreErrors")
        self.page.evaluate("dispatchEvent(new Event('online'))")

    def hold(self, pattern: str | re.Pattern[str], held: list[Route]) -> None:
        """Let requests that fit a pattern wait until `page.unroute(pattern)`."""

        def keep(route: Route) -> None:
            held.append(route)

        self.page.route(pattern, keep)

    @staticmethod
    def _drop(route: Route) -> None:
        route.abort("connectionreset")
