"""Every action of the chat in every state of a run.

Each case brings a run into a state, does one thing, sees its effect or that it is refused in plain
words, lets the run come to its end, and then finds on the page what the server has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Locator, expect

from sennit import Tool
from tests.http_server import Running, serving
from tests.studio.conftest import OpenStudio, note
from tests.studio.pages import ENGINE_WORDS
from tests.studio.runs import (
    ANSWERED,
    ASKED,
    HALTED,
    OLD_ANSWER,
    OLD_QUESTION,
    RUNNING,
    SENT,
    STATES,
    TOLD,
    Case,
    Model,
    State,
    sending,
    stopped,
    waiting,
)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, model: Model) -> Iterator[Running]:
    store = tmp_path_factory.mktemp("actions") / "s.db"
    with serving(store, models=[model], tools=[Tool(note, needs_approval=True)]) as running:
        yield running


@pytest.fixture
def case(server: Running, model: Model, open_studio: OpenStudio) -> Iterator[Case]:
    case = Case.open(lambda where: open_studio(server, where), server, model)
    case.studio.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    yield case
    case.release()
    if not case.finished:  # it was left in mid-answer
        server.post(f"{case.api}/cancel")
        model.forget()


# Looking


def panel(case: Case) -> Locator:
    return case.studio.page.get_by_role("complementary", name="Prompt")


def see_the_old_prompt(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "Show the prompt")
    expect(panel(case).locator(".part.kind-message")).to_contain_text([OLD_QUESTION])
    case.studio.page.get_by_role("button", name="Close").click()
    expect(panel(case)).to_have_count(0)


def see_the_new_prompt(case: Case) -> None:
    case.studio.do(TOLD, "Show the prompt")
    expect(panel(case).locator(".part.kind-message").last).to_contain_text(ASKED)
    case.studio.page.get_by_role("button", name="Close").click()


def look_at_the_tree(case: Case) -> None:
    case.studio.page.locator("#tab-tree").click()
    expect(case.studio.page.locator("svg a.head")).to_have_count(2)
    if case.finished:  # what is held back belongs to the view that was left
        case.release()
    case.studio.page.locator("#tab-chat").click()
    case.studio.sees(OLD_ANSWER)


def compare(case: Case) -> None:
    case.studio.page.locator("#tab-compare").click()
    expect(case.studio.page.locator(".column")).to_have_count(2)
    case.release()
    case.studio.page.locator("#tab-chat").click()
    case.studio.sees(OLD_ANSWER)


def switch_the_branch(case: Case) -> None:
    picker = case.studio.page.locator("#branch")
    picker.select_option(label="other")
    case.studio.is_on("other")
    expect(case.studio.messages).to_have_count(2)
    case.release()
    picker.select_option(label="main")
    case.studio.is_on("main")
    case.studio.sees(ASKED)


def search(case: Case) -> None:
    field = case.studio.page.locator("#search")
    field.fill("rope to a post")
    case.studio.page.locator(".session.found", has_text=OLD_ANSWER).first.click()
    case.studio.sees(OLD_ANSWER)
    field.fill("")
    case.release()


def go_away_and_come_back(case: Case) -> None:
    case.studio.page.get_by_role("link", name="Usage").click()
    expect(case.studio.page.get_by_role("heading", name="Usage")).to_be_visible()
    case.release()
    case.studio.page.go_back()
    case.studio.sees(OLD_ANSWER)


def begin_another(case: Case) -> None:
    case.studio.begin()
    case.release()
    case.studio.page.go_back()
    case.studio.sees(OLD_ANSWER)


def reload(case: Case) -> None:
    case.release()
    case.studio.page.reload()
    case.studio.sees(ASKED)


def look_again(case: Case) -> None:
    case.studio.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    case.studio.sees(OLD_ANSWER)


def lose_the_connection(case: Case) -> None:
    for stream in list(case.server.state.streams):
        case.model.loop.call_soon_threadsafe(stream.stop)
    case.studio.sees(OLD_ANSWER)


# Saying


def say_more(case: Case) -> None:
    case.studio.say("And a bend")
    case.studio.sees("And a bend")
    if case.go_on is not None:
        case.finished = True  # what had come to a halt is not gone on with
    case.finish()
    case.studio.hears("You said: And a bend")


def say_more_too_early(case: Case) -> None:
    case.studio.say("And a bend")
    field = case.studio.page.locator("#say")
    expect(case.studio.page.get_by_role("button", name="Send")).to_be_disabled()
    expect(field).to_have_value("And a bend")
    case.finish()
    case.studio.hears(TOLD)
    field.press("Enter")
    case.studio.hears("You said: And a bend")


def stop(case: Case) -> None:
    case.studio.page.locator("#stop").click()
    case.release()
    case.studio.idle()
    if not case.finished:
        case.finished = True
        case.model.forget()


def edit(case: Case) -> None:
    case.studio.do(OLD_QUESTION, "Edit on a new branch")
    field = case.studio.page.get_by_label("New text")
    field.fill("What is a bend")
    field.press("Enter")
    case.release()
    case.studio.is_on("main_fork_1")
    case.studio.hears("You said: What is a bend")


def edit_the_new_question(case: Case) -> None:
    case.studio.do(ASKED, "Edit on a new branch")
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
    case.studio.idle()
    expect(field).to_have_value("What is a bend")
    case.studio.page.get_by_role("button", name="Cancel").click()


def retry(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "Retry on a new branch")
    case.release()
    case.studio.is_on("main_fork_1")
    case.studio.hears(f"You said: {OLD_QUESTION}")


def retry_the_new_answer(case: Case) -> None:
    case.studio.do(TOLD, "Retry on a new branch")
    case.release()
    case.studio.is_on("main_fork_1")
    case.model.say("The sheet bend.")
    case.model.finish()
    case.studio.hears("The sheet bend.")


def fork(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "Fork after this message")
    case.studio.page.get_by_label("Name of the new branch").fill("aside")
    case.studio.page.keyboard.press("Enter")
    case.release()
    case.studio.is_on("aside")
    expect(case.studio.messages).to_have_count(2)


# Deciding


def approve(case: Case) -> None:
    case.studio.page.get_by_role("button", name="Approve").click()
    case.go_on = None
    case.finish()
    expect(case.studio.page.locator(".card.outcome")).to_contain_text("noted: buy rope")


def deny(case: Case) -> None:
    case.studio.page.get_by_label("Reason for denying").fill("Not today")
    case.studio.page.get_by_role("button", name="Deny").click()
    case.go_on = None
    case.finish()
    expect(case.studio.page.locator(".card.outcome")).to_contain_text("Not today")


def judge(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "Good answer")
    good = case.studio.message(OLD_ANSWER).get_by_role("button", name="Good answer")
    expect(good).to_have_attribute("aria-pressed", "true")


def judge_the_new_answer(case: Case) -> None:
    case.studio.do(TOLD, "Bad answer")
    bad = case.studio.message(TOLD).get_by_role("button", name="Bad answer")
    expect(bad).to_have_attribute("aria-pressed", "true")


# Keeping


def toast(case: Case) -> Locator:
    return case.studio.page.locator(".toast").last


def copy(case: Case) -> None:
    case.studio.do(OLD_ANSWER, "Copy the text")
    expect(toast(case)).to_have_text("Copied.")
    assert case.studio.page.evaluate("navigator.clipboard.readText()") == OLD_ANSWER


def rename(case: Case) -> None:
    head = case.studio.page.locator(".session-head")
    head.get_by_role("button", name="More").click()
    case.studio.page.get_by_role("menuitem", name="Name this session").click()
    dialog = case.studio.page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("Knots")
    dialog.get_by_role("button", name="Rename").click()
    case.release()
    expect(head.locator("h1")).to_have_text("Knots")


def remember_and_undo(case: Case) -> None:
    case.studio.page.locator("#remember").click()
    expect(case.studio.page.locator(".memory-entry")).to_contain_text(["green tea"])
    case.studio.page.get_by_role("link", name="Commits").click()
    case.studio.page.locator(".commit .undo").first.click()
    case.studio.page.get_by_role("dialog").get_by_role("button", name="Undo").click()
    expect(toast(case)).to_have_text("The commit was undone.")
    case.release()
    case.show()
    case.studio.sees(OLD_ANSWER)


def use_keys(case: Case) -> None:
    press = case.studio.page.keyboard.press
    case.studio.message(OLD_ANSWER).click()
    press("Escape")
    press("w")
    expect(panel(case).locator(".part.kind-message")).to_contain_text([OLD_QUESTION])
    press("Escape")
    expect(panel(case)).to_have_count(0)
    press("Escape")
    press("k")
    expect(case.studio.message(OLD_QUESTION)).to_have_attribute("aria-current", "true")
    press("i")
    expect(case.studio.page.locator("#say")).to_be_focused()


# What takes the conversation away is seen to be gone, and stays so


def _delete(case: Case, what: str) -> None:
    case.studio.page.locator(".session-head").get_by_role("button", name="More").click()
    case.studio.page.get_by_role("menuitem", name=f"Delete this {what}").click()
    case.studio.page.get_by_role("dialog").get_by_role("button", name="Delete").click()


def delete_the_branch(case: Case) -> None:
    _delete(case, "branch")
    case.release()
    case.studio.is_on("other")
    expect(case.studio.messages).to_have_count(2)


def delete_the_session(case: Case) -> None:
    _delete(case, "session")
    case.release()
    case.studio.page.locator(".welcome").wait_for()
    expect(case.studio.page.locator(f'.session[href*="{case.session}"]')).to_have_count(0)


Act = Callable[[Case], None]
ACTIONS: dict[Act, list[State]] = {
    see_the_old_prompt: STATES,
    see_the_new_prompt: ANSWERED,
    look_at_the_tree: STATES,
    compare: STATES,
    switch_the_branch: STATES,
    search: STATES,
    go_away_and_come_back: STATES,
    begin_another: STATES,
    reload: SENT,  # what is on its way is taken back by it
    look_again: STATES,
    lose_the_connection: RUNNING,
    say_more: SENT,
    say_more_too_early: [sending],  # one text at a time
    stop: RUNNING,
    edit: STATES,
    edit_the_new_question: SENT,
    begin_an_edit: STATES,
    retry: STATES,
    retry_the_new_answer: ANSWERED,
    fork: STATES,
    approve: [waiting],
    deny: [waiting],
    judge: STATES,
    judge_the_new_answer: ANSWERED,
    copy: STATES,
    rename: STATES,
    remember_and_undo: STATES,
    use_keys: STATES,
}
CASES = [(act, state) for act, states in ACTIONS.items() for state in states]
REMOVALS = [(act, state) for act in (delete_the_branch, delete_the_session) for state in STATES]


def matrix(cases: list[tuple[Act, State]]) -> pytest.MarkDecorator:
    """All cases; of most only every fifth is quick, so that each action and state is among them."""
    actions = list(dict.fromkeys(act for act, _ in cases))
    often = {see_the_new_prompt, say_more, stop, approve, deny}

    def marks(act: Act, state: State) -> list[pytest.MarkDecorator]:
        turn = (actions.index(act) + STATES.index(state)) % 5
        return [] if act in often or turn == 0 else [pytest.mark.slow]

    return pytest.mark.parametrize(
        ("act", "state"),
        [
            pytest.param(act, state, id=f"{act.__name__}-{state.__name__}", marks=marks(act, state))
            for act, state in cases
        ],
    )


@matrix(CASES)
def test_an_action_has_its_effect_in_every_state_of_a_run(
    case: Case, act: Act, state: State
) -> None:
    state(case)
    act(case)
    case.finish()
    case.show()
    ends = act is stop or state is stopped or (act is say_more and state in HALTED)
    case.studio.sees(ASKED if ends else TOLD)
    case.studio.idle()
    case.check()


@matrix(REMOVALS)
def test_what_is_deleted_in_any_state_of_a_run_is_gone(case: Case, act: Act, state: State) -> None:
    case.studio.expected_refusals = 2  # of what was on its way
    state(case)
    act(case)
    gone = case.api if act is delete_the_branch else case.api.partition("/branches")[0]
    assert case.server.get(gone).status_code == 404
    expect(case.studio.page.locator("body")).not_to_contain_text(ENGINE_WORDS)
    if not case.finished:
        case.finished = True
        case.model.forget()
