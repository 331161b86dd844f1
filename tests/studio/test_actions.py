"""Every action of the chat in every state of a run.

Each case opens a branch that has a question and its answer, brings a run on it into a state, does
one thing, sees its effect, lets the run come to its end, and then finds on the page what the server
has. States are held still by a model that waits for the test, and by requests that are held back.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product

import pytest
from playwright.sync_api import expect

from sennit.services.reply import Delta, Finished, TextDelta, Usage
from sennit.services.request import ModelRequest
from tests.serving import Running, serving, texts
from tests.studio.conftest import OpenStudio
from tests.studio.pages import Studio
from tests.studio.stepped import SteppedModel

ASKED, TOLD = "Name a knot", "The bowline."
OLD_QUESTION, OLD_ANSWER = "What is a hitch", "It ties a rope to a post."


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
    held: str | re.Pattern[str] | None = None
    """Requests that are held back."""

    @property
    def link(self) -> str:
        return f"#/s/{self.session}/{self.branch}"

    @property
    def api(self) -> str:
        return f"/api/sessions/{self.session}/branches/{self.branch}"

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
        self.finish_held()

    def finish_held(self) -> None:
        if not self.finished:
            self.finished = True
            self.model.say(TOLD)
            self.model.finish()


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Running]:
    with serving(tmp_path_factory.mktemp("actions") / "s.db", models=[model]) as running:
        yield running


@pytest.fixture
def case(server: Running, model: Model, open_studio: OpenStudio) -> Iterator[Case]:
    session = server.post("/api/sessions").json()["id"]
    made = server.post(f"/api/sessions/{session}/branches", {"name": "main"}).json()
    for role, text in (("user", OLD_QUESTION), ("assistant", OLD_ANSWER)):
        said = {"role": role, "text": text}
        server.post(f"/api/sessions/{session}/branches/main/messages", said).raise_for_status()
    studio = open_studio(server, f"#/s/{session}/{made['id']}")
    studio.sees(OLD_ANSWER)
    case = Case(studio, server, model, session, made["id"])
    yield case
    case.release()


# The states of a run


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
        case.finish_held()


def just_ended(case: Case) -> None:
    """The page has all of the answer, and looks at the session once more."""
    streaming(case)
    session = re.compile(f"/api/sessions/{case.session}$")
    case.hold(session)
    with case.studio.page.expect_request(session):
        case.finish_held()
    case.studio.idle()


def ended(case: Case) -> None:
    """All is done."""
    streaming(case)
    case.finish()
    case.studio.hears(TOLD)


STATES = [sending, beginning, streaming, ending, just_ended, ended]
HAS_ANSWER = {ending, just_ended, ended}
RUNNING = {beginning, streaming, ending}


# The actions, each with the effect that is seen at once


def see_the_old_prompt(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "What the model saw")
    panel = case.studio.page.get_by_role("complementary", name="What the model saw")
    expect(panel.locator(".part.kind-message")).to_contain_text([OLD_QUESTION])
    case.studio.page.get_by_role("button", name="Close").click()
    expect(panel).to_have_count(0)


def see_the_new_prompt(case: Case) -> None:
    case.studio.do(TOLD, "What the model saw")
    panel = case.studio.page.get_by_role("complementary", name="What the model saw")
    expect(panel.locator(".part.kind-message").last).to_contain_text(ASKED)
    case.studio.page.get_by_role("button", name="Close").click()


def judge(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "A good answer")
    good = case.studio.message(OLD_ANSWER).get_by_role("button", name="A good answer")
    expect(good).to_have_attribute("aria-pressed", "true")


def judge_the_new_answer(case: Case) -> None:
    case.studio.do(TOLD, "A bad answer")
    bad = case.studio.message(TOLD).get_by_role("button", name="A bad answer")
    expect(bad).to_have_attribute("aria-pressed", "true")


def edit(case: Case) -> None:
    case.studio.do(OLD_QUESTION, "Edit on a new branch")
    field = case.studio.page.get_by_label("New text")
    field.fill("What is a bend")
    field.press("Enter")
    case.release()
    case.studio.is_on("main_fork_1")
    case.studio.hears("You said: What is a bend")


def begin_an_edit(case: Case) -> None:
    case.studio.do(OLD_QUESTION, "Edit on a new branch")
    field = case.studio.page.get_by_label("New text")
    field.fill("What is a bend")
    case.finish()
    case.studio.hears(TOLD)
    expect(field).to_have_value("What is a bend")
    case.studio.page.get_by_role("button", name="Cancel").click()


def retry(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "Retry on a new branch")
    case.release()
    case.studio.is_on("main_fork_1")
    case.studio.hears(f"You said: {OLD_QUESTION}")


def fork(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "Fork after this message")
    case.studio.page.get_by_label("Name of the new branch").fill("aside")
    case.studio.page.keyboard.press("Enter")
    case.release()
    case.studio.is_on("aside")
    expect(case.studio.messages).to_have_count(2)


def say_more(case: Case) -> None:
    case.studio.say("And a bend")
    case.studio.sees("And a bend")
    case.finish()
    case.studio.hears("You said: And a bend")


def stop(case: Case) -> None:
    case.studio.page.locator("#stop").click()
    case.release()
    case.studio.idle()
    if not case.finished:
        case.finished = True
        case.model.forget()


def reload(case: Case) -> None:
    case.release()
    case.studio.page.reload()
    case.studio.sees(ASKED)


def look_at_the_tree(case: Case) -> None:
    case.studio.page.locator("#tab-tree").click()
    expect(case.studio.page.locator("svg a.head")).to_have_count(1)
    if case.finished:  # what is held back belongs to the view that was left
        case.release()
    case.studio.page.locator("#tab-chat").click()
    case.studio.sees(OLD_ANSWER)


def go_away_and_come_back(case: Case) -> None:
    case.studio.page.get_by_role("link", name="Usage").click()
    expect(case.studio.page.get_by_role("heading", name="Usage")).to_be_visible()
    case.release()
    case.studio.page.go_back()
    case.studio.sees(OLD_ANSWER)


def look_again(case: Case) -> None:
    case.studio.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    case.studio.sees(OLD_ANSWER)


def lose_the_connection(case: Case) -> None:
    for stream in list(case.server.state.streams):
        case.model.loop.call_soon_threadsafe(stream.stop)
    case.studio.sees(OLD_ANSWER)


def rename(case: Case) -> None:
    head = case.studio.page.locator(".session-head")
    head.get_by_role("button", name="More").click()
    case.studio.page.get_by_role("menuitem", name="Name this session").click()
    dialog = case.studio.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("Knots")
    dialog.get_by_role("button", name="Rename").click()
    case.release()
    expect(head.locator("h1")).to_have_text("Knots")


def use_keys(case: Case) -> None:
    press = case.studio.page.keyboard.press
    press("Escape")
    press("k")
    expect(case.studio.page.locator("article.selected")).to_have_count(1)
    press("i")
    expect(case.studio.page.locator("#say")).to_be_focused()


Step = Callable[[Case], None]
ACTIONS: dict[Step, set[Step]] = {
    see_the_old_prompt: set(STATES),
    see_the_new_prompt: HAS_ANSWER,
    judge: set(STATES),
    judge_the_new_answer: HAS_ANSWER,
    edit: set(STATES),
    begin_an_edit: set(STATES),
    retry: set(STATES),
    fork: set(STATES),
    say_more: set(STATES) - {sending},  # one text at a time
    stop: RUNNING,
    reload: set(STATES) - {sending},  # which takes back what is on its way
    look_at_the_tree: set(STATES),
    go_away_and_come_back: set(STATES),
    look_again: set(STATES),
    lose_the_connection: RUNNING,
    rename: set(STATES),
    use_keys: set(STATES),
}
CASES = [(act, state) for act, state in product(ACTIONS, STATES) if state in ACTIONS[act]]


@pytest.mark.parametrize(
    ("act", "state"), CASES, ids=[f"{act.__name__}-{state.__name__}" for act, state in CASES]
)
def test_an_action_has_its_effect_in_every_state_of_a_run(
    case: Case, act: Step, state: Step
) -> None:
    state(case)
    act(case)
    case.finish()
    studio = case.studio
    if studio.page.url.partition("?")[0] != f"{studio.url}/{case.link}":
        studio.go(case.link)
    studio.sees(ASKED if act is stop else TOLD)
    studio.idle()
    expect(studio.messages).to_have_count(len(texts(case.server, case.api)))
    shown = [one.inner_text() for one in studio.messages.locator(".body").all()]
    assert shown == [text.strip() for text in texts(case.server, case.api)]
    expect(studio.page.locator(".notice:not(.calm)")).to_have_count(0)
