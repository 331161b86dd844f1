"""The commands of a chat, and what a person sees of answers."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import pytest

from sennit import ModelError
from sennit.cli.chat.conversation import ChatOptions, ChatSession
from sennit.cli.chat.slash_commands import COMMANDS, Prompt, Quit
from sennit.services.models.imodel import iModel
from sennit.services.models.reply import ReplyReasoning
from sennit.testing import ToolCall
from tests.cli.talks import Desk
from tests.services import wire_server
from tests.services.wire_server import chunks, event, piece


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_an_answer_is_shown_as_it_was_said() -> None:
    desk = Desk(["One.\n\nTwo."])
    assert desk.type("Count") == "One.\n\nTwo.\n"


def test_an_empty_line_says_nothing() -> None:
    assert Desk([]).step("   ") == Prompt()


def test_help_lists_every_command() -> None:
    shown = Desk([]).type("/help")
    assert all(command.usage in shown for command in COMMANDS.values())


@pytest.mark.parametrize(("typed", "meant"), [("/hlep", "/help"), ("/swich x", "/switch")])
def test_an_unknown_command_is_explained_with_the_nearest(typed: str, meant: str) -> None:
    desk = Desk([])
    assert f"Did you mean '{meant}'?" in desk.type(typed)
    assert desk.talk.questions == []


def test_two_slashes_say_a_slash_to_the_model() -> None:
    desk = Desk(["A folder."])
    desk.type("//usr is what?")
    assert desk.said("main")[0] == "user: Instruction: /usr is what?"


def test_a_fork_goes_on_with_the_same_history() -> None:
    desk = Desk(["Yes.", "No."])
    desk.type("Really?")
    assert "Now on idea, a fork of main." in desk.type("/fork idea")
    desk.type("Truly?")
    assert [len(desk.said(name)) for name in ("main", "idea")] == [2, 4]
    assert len(desk.model.requests[1].messages) == 3


def test_a_fork_whose_name_is_taken_is_one_line() -> None:
    desk = Desk([])
    shown = desk.type("/fork main")
    assert "already a branch named 'main'" in shown
    assert desk.branch == "main"


def test_switching_shows_where_one_was() -> None:
    desk = Desk(["Yes."])
    desk.type("Really?")
    desk.type("/fork idea")
    shown = desk.type("/switch main")
    assert "Now on main (2 messages)." in shown
    assert "1› Really?" in shown
    assert "Did you mean 'idea'?" in desk.type("/switch idae")
    assert "The branch is missing" in desk.type("/switch")


def test_the_branch_one_is_on_is_renamed() -> None:
    desk = Desk([])
    assert "cannot be renamed" in desk.type("/rename idea")
    desk.type("/fork idea")
    assert "now named a better idea" in desk.type("/rename a better idea")
    assert desk.branch == "a better idea"
    assert "already a branch named 'main'" in desk.type("/rename main")
    assert "/rename NAME" in desk.type("/rename")
    assert "Now on main" in desk.type("/switch main")


def test_branches_and_tree_show_the_forks() -> None:
    desk = Desk(["Yes."])
    desk.type("Really?")
    desk.type("/fork idea")
    assert "* idea (2 messages)  Yes." in desk.type("/branches")
    assert "└─ idea (2 messages, forked after 2)" in desk.type("/tree")


def test_editing_the_last_message_answers_it_on_a_fork() -> None:
    desk = Desk(["Paris.", "Rome."])
    desk.type("Capital of France?")
    assert "Rome." in desk.type("/edit Capital of Italy?")
    assert desk.said("main")[-1] == "assistant: Paris."
    assert desk.said("main_fork_1") == [
        "user: Instruction: Capital of Italy?",
        "assistant: Rome.",
    ]
    assert desk.branch == "main_fork_1"


def test_an_earlier_message_is_edited_by_its_number() -> None:
    desk = Desk(["1", "2", "3"])
    desk.type("first")
    desk.type("second")
    desk.type("/edit 1 another first")
    assert desk.said(desk.branch) == ["user: Instruction: another first", "assistant: 3"]


def test_editing_without_a_text_puts_the_old_one_into_the_line() -> None:
    desk = Desk(["1", "2"])
    desk.type("first")
    desk.type("second")
    assert desk.step("/edit") == Prompt("/edit 3 second")
    assert desk.step("/edit 1") == Prompt("/edit 1 first")


def test_a_number_that_no_message_has_is_one_line() -> None:
    desk = Desk(["1"])
    assert "not sent a message" in desk.type("/edit x")
    desk.type("first")
    assert "/history shows their numbers" in desk.type("/edit 7 x")
    assert desk.branch == "main"


def test_retry_gives_the_answer_anew_on_a_fork() -> None:
    desk = Desk(["Heads.", "Tails."])
    desk.type("Toss")
    assert "Tails." in desk.type("/retry")
    assert desk.said("main")[-1] == "assistant: Heads."
    assert desk.said("main_fork_1")[-1] == "assistant: Tails."


def test_retry_after_a_failure_asks_again_where_one_is() -> None:
    desk = Desk([ModelError("The network is gone.", kind="network"), "Back."])
    assert desk.type("Hello") == "The network is gone.\n"
    assert desk.type("/retry") == "Back.\n"
    assert desk.branch == "main"


def test_retry_takes_back_a_whole_answer_with_its_tool_calls() -> None:
    call = ["Let me see.", ToolCall("add", {"a": 1, "b": 2})]
    desk = Desk([call, "3", "Three."], tools=_tools())
    desk.type("1 + 2?")
    desk.type("/retry")
    assert desk.said(desk.branch) == ["user: Instruction: 1 + 2?", "assistant: Three."]


def test_undo_takes_back_the_last_exchange() -> None:
    desk = Desk(["1", "2"])
    desk.type("first")
    desk.type("second")
    assert desk.type("/undo") == "Removed: second\n"
    assert desk.said("main") == ["user: Instruction: first", "assistant: 1"]
    desk.type("/undo")
    assert "not sent a message" in desk.type("/undo")


def test_undo_does_not_touch_other_branches() -> None:
    desk = Desk(["1"])
    desk.type("first")
    desk.type("/fork idea")
    desk.type("/undo")
    assert (len(desk.said("main")), len(desk.said("idea"))) == (2, 0)


def test_the_system_message_is_shown_set_and_removed() -> None:
    desk = Desk(["Ahoy."])
    assert "no system message" in desk.type("/system")
    desk.type("/system You are a pirate.")
    assert desk.type("/system") == "You are a pirate.\n"
    desk.type("Hello")
    assert desk.model.requests[0].messages[0]["role"] == "system"
    desk.type("/system -")
    assert "no system message" in desk.type("/system")


def test_tools_are_listed_and_their_calls_are_one_line_cards() -> None:
    desk = Desk([["Hm.", ToolCall("add", {"a": 1, "b": 2})], "Three."], tools=_tools())
    assert "add  Add two numbers." in desk.type("/tools")
    assert desk.type("1 + 2?") == "Hm.\n→ add(a=1, b=2)\n← 3\nThree.\n"


def test_a_call_that_cannot_be_made_is_shown_as_one() -> None:
    desk = Desk([[ToolCall("add", {"a": "x" * 200})], "Sorry."], tools=_tools())
    call, failure, answer = desk.type("add").splitlines()
    assert call.startswith("→ add(a=")
    assert len(call) < 80
    assert failure.startswith("✗ ")
    assert answer == "Sorry."


def test_without_tools_the_option_is_named() -> None:
    assert "--tool" in Desk([]).type("/tools")


def test_history_has_the_numbers_that_show_fork_and_tree_have() -> None:
    desk = Desk(["one\ntwo"])
    assert "There are no messages yet." in desk.type("/history")
    desk.type("/system Be brief.")
    desk.type("Count")
    assert desk.type("/history").splitlines()[-3:] == ["2› Count", "3  one", "two"]
    assert "1  system: Be brief." in desk.type("/history")
    assert desk.step("/edit 2") == Prompt("/edit 2 Count")
    assert "Message 3 is not one of your messages" in desk.type("/edit 3 x")


@pytest.mark.parametrize("typed", ["/quit", "/QUIT", "/exit", "/Exit"])
def test_quit_has_two_names_in_any_case(typed: str) -> None:
    assert Desk([]).step(typed) == Quit()


@pytest.mark.parametrize("typed", ["help", "Help", "?", "quit", "EXIT"])
def test_help_and_quit_need_no_slash(typed: str) -> None:
    desk = Desk([])
    step = desk.step(typed)
    assert step == Quit() or "/help" in desk.shown()


def test_model_says_who_answers_and_takes_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-for-the-test")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    desk = Desk([])
    shown = desk.type("/model")
    assert shown.startswith("scripted\n")
    assert "/model NAME uses another one" in shown
    assert desk.type("/model openai:gpt-5") == "The next answers come from openai:gpt-5.\n"
    assert desk.type("/model").startswith("openai:gpt-5\n")
    shown = desk.type("/model anthropic:claude-sonnet-4-5")
    assert "needs an API key: set ANTHROPIC_API_KEY" in shown
    shown = desk.type("/model claude-sonnet-4-5")
    assert "Did you mean 'anthropic:claude-sonnet-4-5'?" in " ".join(shown.split())


@pytest.mark.parametrize("name", ["gpt5", "nobody:gpt-5", "local:/nope.gguf"])
def test_a_model_that_cannot_answer_is_refused_and_the_old_one_stays(name: str) -> None:
    desk = Desk(["Here."])
    assert desk.type(f"/model {name}").count("\n") < 5
    assert desk.type("Hello") == "Here.\n"


def test_sessions_are_listed_opened_and_begun_without_leaving_the_chat() -> None:
    desk = Desk(["A bowline.", "A jib."])
    desk.type("Name a knot")
    assert desk.type("/new") == "Now in session chat-2 (main, 0 messages).\n"
    desk.type("Name a sail")
    assert desk.type("/title Sails and spars") == "Sails and spars\n"
    listed = " ".join(desk.type("/sessions").split())
    assert "chat-2 2 messages Sails and spars … A jib." in listed
    assert "Name a knot … A bowline." in listed
    opened = desk.type("/open 2")
    assert opened == "Now in session chat (main, 2 messages).\n1› Name a knot\n2  A bowline.\n"
    desk.type("/sessions sails")
    assert "Sails and spars" in desk.type("/open 1"), "the numbers are those that were shown"
    assert desk.said("main")[0].endswith("Name a sail")
    assert "Did you mean 'chat-2' or 'chat'? /sessions lists them." in " ".join(
        desk.type("/open chat-3").split()
    )
    assert "/open chat opens it" in desk.type("/new chat")
    assert desk.type("/new knots") == "Now in session knots (main, 0 messages).\n"


def test_a_title_is_the_first_words_until_one_is_set() -> None:
    desk = Desk(["A bowline."])
    assert "no title yet" in desk.type("/title")
    desk.type("Name a knot")
    assert desk.type("/title") == "Name a knot\n"
    desk.type("/title Knots")
    assert desk.type("/title -") == "Name a knot\n"


def test_an_answer_is_copied_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    desk = Desk(["A **bowline**."])
    assert "no answer" in desk.type("/copy")
    desk.type("Name a knot")
    shown = desk.type("/copy")
    sequence = b64encode(b"A **bowline**.").decode()
    assert shown.startswith(f"\x1b]52;c;{sequence}\x07Sent message 2 (14 characters)")
    assert "Sent message 1 (11 characters)" in desk.type("/copy 1")
    assert "numbered from 1; got '7'" in desk.type("/copy 7")


def test_a_desktop_has_a_program_for_its_clipboard(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "xclip"
    program.write_text(f"#!/bin/sh\ncat > {tmp_path}/copied\n")
    program.chmod(0o755)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    desk = Desk(["A bowline."])
    desk.type("Name a knot")
    assert desk.type("/copy") == "Copied message 2 (10 characters).\n"
    assert (tmp_path / "copied").read_text() == "A bowline."


def test_a_command_refuses_words_that_it_does_not_take() -> None:
    desk = Desk(["A bowline."])
    desk.type("Name a knot")
    for line in ("/undo please", "/tree extra", "/retry now"):
        assert "takes nothing after it" in desk.type(line)
    assert len(desk.said("main")) == 2


def test_discard_without_an_interrupted_answer_changes_nothing() -> None:
    desk = Desk(["A bowline."])
    desk.type("Name a knot")
    assert "/undo removes a complete one" in desk.type("/discard")
    assert len(desk.said("main")) == 2


def test_markdown_of_an_answer_is_rendered_also_when_it_is_shown_again() -> None:
    desk = Desk(["# Knots\n\n- a **bowline**"])
    assert desk.type("Name a knot") == "Knots\n\n• a bowline\n"
    assert desk.type("/history") == "1› Name a knot\n2  Knots\n\n• a bowline\n"


def test_answers_and_notes_are_broken_between_words() -> None:
    text = "A bowline makes a loop that does not slip. " * 6
    desk = Desk([text])
    shown = desk.type("Knots?")
    assert " ".join(shown.split()) == text.strip()
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert all(len(line) <= 80 for line in desk.type("/model").splitlines())


def test_quit_quits() -> None:
    assert Desk([]).step("/quit") == Quit()


def test_reasoning_stands_apart_from_the_answer() -> None:
    desk = Desk([[ReplyReasoning("Hm, hm."), "Yes."]])
    assert desk.type("Well?") == "Hm, hm.\nYes.\n"


def test_what_a_model_says_cannot_command_the_terminal() -> None:
    desk = Desk(["\x1b[2J\x1b]0;owned\x07Hi\x9b31m\rthere"])
    shown = desk.type("Hello")
    assert not any(sign in shown for sign in "\x1b\x07\x9b\r")
    assert "Hi" in shown


def test_a_failure_in_mid_answer_keeps_what_was_said() -> None:
    desk = Desk([["Half a", ModelError("gone", kind="network")]])
    assert desk.type("Hello") == "Half a\ngone\n"
    assert desk.said("main")[-1] == "assistant: Half a"


def test_a_model_that_does_not_stream_answers_all_the_same() -> None:
    desk = Desk(["Whole."])
    desk.model.streams = False
    assert desk.type("Hello") == "Whole.\n"


def _tools() -> tuple[object, ...]:
    from sennit import Tool

    return (Tool(add),)


SECRET = "My password is swordfish42 and my favourite colour is mauve."
ASKED = "What is my password and favourite colour?"


def test_what_was_taken_back_reaches_no_provider(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    store = str(tmp_path / "u.db")
    with wire_server.running() as provider:
        told = chunks(piece(content="You said: swordfish42."), piece("stop"), event("[DONE]"))
        provider.says(told)
        model = iModel("openai:fake", base_url=f"{provider.url}/v1")
        desk = Desk([], store=store)
        desk.talk.options = ChatOptions(model=model)
        desk.type(SECRET)
        assert "swordfish42" in str(provider.body)
        desk.type("/undo")
        desk.type("Hello")
        assert "mauve" not in str(provider.body)
        desk.client.close()
        later = Desk([], store=store)
        later.talk = ChatSession(
            later.client.session("other"), ChatOptions(model=model, other_sessions=True)
        )
        later.type(ASKED)
        sent = str(provider.body)
        assert ASKED in sent
        assert "mauve" not in sent
        found = later.client.find("mauve")
        assert [one.abstract for one in found if "mauve" in one.abstract] == []
        later.client.close()


def test_undo_of_what_was_committed_says_so_and_forget_erases_it() -> None:
    desk = Desk(["Noted.", "Hello."])
    desk.type("I prefer mauve tea to coffee.")
    assert "nothing to erase" in desk.type("/forget")
    desk.type("/commit")
    desk.type("Hi")
    assert "committed before" not in desk.type("/undo")
    assert "/forget erases both" in desk.type("/undo").replace("\n", " ")
    assert any("mauve" in one.abstract for one in desk.client.find("mauve"))
    assert "Erased 2 messages" in desk.type("/forget")
    assert desk.client.find("mauve") == []
    assert "nothing to erase" in desk.type("/forget").replace("\n", " ")
