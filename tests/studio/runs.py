"""States of a run on a page, each held still until the test goes on.

A case opens a branch that has a question and its answer, and beside it a fork of it. Each state is
a function that brings a run there; `Case.finish` lets the run come to its end from any of them.
"""

from __future__ import annotations

import re
from asyncio import run_coroutine_threadsafe
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from playwright.sync_api import expect

from sennit import ModelError
from sennit.services.models.reply import Delta, Finished, TextDelta, Usage
from sennit.services.models.request import ModelRequest
from tests.http_server import Running
from tests.studio.pages import Studio
from tests.studio.stepped import SteppedModel

ASKED, TOLD = "Name a knot", "The bowline."
OLD_QUESTION = "I prefer green tea to coffee. What is a hitch"
OLD_ANSWER = "It ties a rope to a post."


class Model(SteppedModel):
    """Answers the one question as the test says, and repeats whatever else was said at once."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncGenerator[AsyncIterator[Delta]]:
        said = [one["content"] for one in request.messages if one["role"] == "user"][-1]
        if said.endswith(ASKED):
            async with super().stream(request) as deltas:
                yield deltas
        else:
            yield self._echo(said)

    async def _echo(self, said: str) -> AsyncIterator[Delta]:
        last = said.splitlines()[-1].removeprefix("Instruction: ")
        yield TextDelta(f"You said: {last}")
        yield Finished("stop", Usage(1, 1), self.name)


@dataclass
class Case:
    """One page on one branch, and the model that answers there."""

    studio: Studio
    server: Running
    model: Model
    session: str
    branch: str
    finished: bool = False
    """Whether the model has no more to say."""
    go_on: str | None = None
    """The button that goes on with a run that has come to a halt."""
    held: str | re.Pattern[str] | None = None
    """Requests that are held back."""

    @classmethod
    def open(cls, studio: Callable[[str], Studio], server: Running, model: Model) -> Case:
        begun = server.post("/api/sessions").json()
        session, made = begun["id"], begun["branches"][0]["id"]
        branches = f"/api/sessions/{session}/branches"
        for role, text in (("user", OLD_QUESTION), ("assistant", OLD_ANSWER)):
            said = {"role": role, "text": text}
            server.post(f"{branches}/main/messages", said).raise_for_status()
        server.post(f"{branches}/main/fork", {"name": "other"}).raise_for_status()
        page = studio(f"#/s/{session}/{made}")
        page.sees(OLD_ANSWER)
        return cls(page, server, model, session, made)

    @property
    def link(self) -> str:
        return f"#/s/{self.session}/{self.branch}"

    @property
    def api(self) -> str:
        return f"/api/sessions/{self.session}/branches/{self.branch}"

    def show(self) -> None:
        """Go to the branch, unless it is shown."""
        if self.studio.page.url.partition("?")[0] != f"{self.studio.url}/{self.link}":
            self.studio.go(self.link)

    def hold(self, pattern: str | re.Pattern[str]) -> None:
        self.held = pattern
        self.studio.hold(pattern, [])

    def release(self) -> None:
        if self.held is not None:
            self.studio.page.unroute(self.held)
            self.held = None

    def finish(self) -> None:
        """Let the run come to its end, unless it has, and hold nothing back."""
        self.release()
        if self.go_on is not None and not self.finished:
            self.show()
            self.studio.page.locator(self.go_on).click()
        self.answer()

    def answer(self) -> None:
        """Say the answer, unless that was done."""
        if not self.finished:
            self.finished = True
            self.model.say(TOLD)
            self.model.finish()

    def suspend(self) -> None:
        """Interrupt the run under way, as the end of the server does."""

        async def interrupt() -> None:
            state = self.server.state
            running = state.runs.on(await state.callers.local().branch(self.session, self.branch))
            assert running is not None
            running.suspend()

        run_coroutine_threadsafe(interrupt(), self.model.loop).result(20)

    def check(self) -> None:
        """Find on the page what the server has, each message once and in its place."""
        self.show()
        there: list[dict[str, Any]] = self.server.get(f"{self.api}/messages").json()["messages"]
        expect(self.studio.messages).to_have_count(len(there))
        said = [one["text"].strip() for one in there if one["kind"] not in ("call", "result")]
        bodies = self.studio.messages.locator(".body").all()
        assert [one.inner_text().strip() for one in bodies] == said
        cards = sum(one["kind"] in ("call", "result") for one in there)
        expect(self.studio.page.locator(".list .card")).to_have_count(cards)
        expect(self.studio.page.locator(".notice:not(.calm)")).to_have_count(0)
        expect(self.studio.page.locator("#stop")).to_have_count(0)


def sending(case: Case) -> None:
    """The text is on its way to the server."""
    case.hold("**/runs")
    with case.studio.page.expect_request("**/runs"):
        case.studio.say(ASKED)


def beginning(case: Case) -> None:
    """The model was asked, and has said nothing."""
    case.studio.say(ASKED)
    case.studio.sees(ASKED)
    case.model.wait_until_asked()


def streaming(case: Case) -> None:
    """A part of the answer is seen."""
    beginning(case)
    case.model.say("Well: ")
    case.studio.sees("Well:")


def ending(case: Case) -> None:
    """The answer is complete, and the page looks at the end of the branch once more."""
    streaming(case)
    last_page = f"**/branches/{case.branch}/messages?limit=60"
    case.hold(last_page)
    with case.studio.page.expect_request(last_page):
        case.answer()


def just_ended(case: Case) -> None:
    """The page has all of the answer, and looks at the session once more."""
    streaming(case)
    session = re.compile(f"/api/sessions/{case.session}$")
    case.hold(session)
    with case.studio.page.expect_request(session):
        case.answer()
    case.studio.idle()


def ended(case: Case) -> None:
    """All is done."""
    streaming(case)
    case.finish()
    case.studio.hears(TOLD)


def stopped(case: Case) -> None:
    """A person has stopped the answer."""
    streaming(case)
    case.studio.page.locator("#stop").click()
    case.studio.idle()
    expect(case.studio.message("Well:")).to_contain_text("Stopped")
    case.finished = True
    case.model.forget()


def failed(case: Case) -> None:
    """The model has failed."""
    beginning(case)
    case.model.fail(ModelError("It is down.", kind="bad_request"))
    case.go_on = "#answer"
    expect(case.studio.page.locator(".notice.error")).to_contain_text("It is down.")
    expect(case.studio.page.locator(case.go_on)).to_be_visible()


def waiting(case: Case) -> None:
    """A tool waits for a person."""
    beginning(case)
    case.model.call("note", '{"text": "buy rope"}', "call_1")
    case.go_on = ".card.asks .primary"
    case.studio.page.locator(case.go_on).wait_for()
    case.studio.idle()


def interrupted(case: Case) -> None:
    """The run was cut off and can be resumed."""
    streaming(case)
    case.suspend()
    case.model.forget()
    case.go_on = "#resume"
    case.studio.page.locator(case.go_on).wait_for()
    case.studio.idle()
    expect(case.studio.message("Well:")).to_contain_text("Interrupted")


State = Callable[[Case], None]
RUNNING: list[State] = [beginning, streaming, ending]
ANSWERED: list[State] = [ending, just_ended, ended]
HALTED: list[State] = [failed, waiting, interrupted]
STATES: list[State] = [
    *(sending, beginning, streaming, ending, just_ended, ended),
    *(stopped, failed, waiting, interrupted),
]
SENT: list[State] = [one for one in STATES if one is not sending]
