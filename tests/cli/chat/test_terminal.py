"""A chat on a real pseudo-terminal: typed keys in, what a person would see out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

import sennit
from tests.cli.terminals import SCRIPTED_CHAT, Terminal, terminal

CTRL_C, CTRL_D, ALT_ENTER, TAB = "\x03", "\x04", "\x1b\r", "\t"


def said(folder: Path, branch: str) -> list[str]:
    """What a new program finds on a branch."""
    with sennit.open(folder / "chat.db") as client:
        messages = client.session("chat").get_branch(branch).messages
        return [str(message.rendered) for message in messages]


def program(folder: Path, *replies: str) -> list[str]:
    return [SCRIPTED_CHAT, str(folder / "chat.db"), *replies]


def notes(folder: Path) -> str:
    """What the tool has written."""
    file = folder / "chat.db.notes"
    return file.read_text(encoding="utf-8") if file.exists() else ""


def quit_(chat: Terminal) -> None:
    chat.expect("›")
    chat.type(CTRL_D)
    assert chat.end() == 0


def test_an_answer_is_shown_while_the_model_still_speaks(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once upon a time…"), tmp_path) as chat:
        chat.say("Tell me", "Once upon a time…")
        chat.type(CTRL_C)
        chat.expect("stopped; the text so far is kept")
        quit_(chat)
    assert said(tmp_path, "main") == ["Instruction: Tell me", "Once upon a time…"]


def test_after_a_stop_the_talk_goes_on_and_a_second_start_continues_it(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once…", "Sure."), tmp_path) as chat:
        chat.expect("chat (new)")
        chat.say("Tell me", "Once…")
        chat.type(CTRL_C)
        chat.expect("stopped")
        chat.say("Go on", "Sure.")
        chat.say("/fork idea", "a fork of main")
        quit_(chat)
    with terminal(program(tmp_path, "Later."), tmp_path) as chat:
        chat.expect("chat (idea, 4 messages)")
        chat.expect("3› Go on\n4  Sure.")
        chat.say("And now", "Later.")
        quit_(chat)
    assert said(tmp_path, "idea")[-2:] == ["Instruction: And now", "Later."]
    assert len(said(tmp_path, "main")) == 4


def test_edit_and_retry_make_forks(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Paris.", "Milan.", "Rome."), tmp_path) as chat:
        chat.say("Capital of France?", "Paris.")
        chat.expect("›")
        chat.type("/edit\r")
        chat.expect("/edit 1 Capital of France?")  # the old text stands in the line
        chat.type("\x7f" * len("France?") + "Italy?\r")
        chat.expect("Milan.")
        chat.say("/retry", "Rome.")
        chat.say("/tree", "You are on main_fork_2.")
        quit_(chat)
    assert said(tmp_path, "main_fork_1") == ["Instruction: Capital of Italy?", "Milan."]
    assert said(tmp_path, "main_fork_2") == ["Instruction: Capital of Italy?", "Rome."]


def test_keys_pressed_during_an_answer_wait_for_the_next_prompt(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once…", "Two."), tmp_path) as chat:
        chat.say("Tell me", "Once…")
        chat.type("more please\r")
        chat.type(CTRL_C)
        chat.expect("stopped")
        chat.expect("Two.")
        quit_(chat)
    assert said(tmp_path, "main")[2] == "Instruction: more please"


def test_lines_that_cannot_be_kept_for_the_arrow_keys_are_said_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "data" / "sennit" / "chat_history").mkdir(parents=True)
    with terminal(program(tmp_path, "One.", "Two."), tmp_path) as chat:
        chat.say("Hello", "One.")
        chat.say("More", "Two.")
        quit_(chat)
    assert "Is a directory" not in chat.shown
    assert said(tmp_path, "main")[2] == "Instruction: More"


def test_alt_enter_starts_a_new_line_and_tab_completes_commands(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Fine."), tmp_path) as chat:
        chat.expect("›")
        chat.type(f"one{ALT_ENTER}two\r")
        chat.expect("Fine.")
        chat.expect("›")
        chat.type(f"/hist{TAB}\r")
        chat.expect("1› one\ntwo\n2  Fine.")
        quit_(chat)
    assert said(tmp_path, "main")[0] == "Instruction: one\ntwo"


def test_bytes_that_are_no_text_are_replaced(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Fine.", "→rope", "No."), tmp_path) as chat:
        chat.expect("›")
        chat.send(b"caf\xe9\r")
        chat.expect("Fine.")
        chat.say("Note: rope", "Allow note")
        chat.expect("›")
        chat.send(b"n na\xefve\r")
        chat.expect("No.")
        quit_(chat)
    assert said(tmp_path, "main")[0] == "Instruction: caf�"
    assert "na�ve" in said(tmp_path, "main")[-2]


def test_colours_in_what_is_typed_are_left_out(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once…", "Fine.", "→rope", "No."), tmp_path) as chat:
        chat.say("Tell me", "Once…")
        chat.type(f"\x1b[31mred\x1b[0m rope\r{CTRL_C}")
        chat.expect("stopped")
        chat.expect("Fine.")
        chat.say("Note: rope", "Allow note")
        chat.say("n \x1b[1mnot\x1b[0m now", "No.")
        quit_(chat)
    assert said(tmp_path, "main")[2] == "Instruction: red rope"
    assert "not now" in said(tmp_path, "main")[-2]


def test_ctrl_c_clears_the_line_and_twice_quits(tmp_path: Path) -> None:
    with terminal(program(tmp_path), tmp_path) as chat:
        chat.expect("›")
        chat.type(f"half a tho{CTRL_C}")
        chat.expect("› ")
        chat.type(f"more{CTRL_C}")  # clearing a line twice is not quitting
        chat.expect("› ")
        chat.type(CTRL_C)
        chat.expect("Ctrl-C again")
        chat.expect("›")
        chat.type(CTRL_C)
        assert chat.end() == 0
    assert said(tmp_path, "main") == []


def test_ctrl_c_right_after_enter_is_not_lost(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once…"), tmp_path) as chat:
        chat.expect("›")
        chat.type("Tell me\r")
        chat.type(CTRL_C)
        chat.type(CTRL_C)  # impatience ends the answer no sooner, and nothing else
        chat.expect("stopped")
        quit_(chat)


def test_ctrl_c_while_the_model_is_connected_sends_nothing_and_is_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    scripted = program(tmp_path, "Here.")
    with terminal([*scripted[:1], "--connecting", str(pipe), *scripted[1:]], tmp_path) as chat:
        chat.say("Hello", "Thinking…")
        chat.type(CTRL_C)
        chat.expect("(stopped; your message was not sent)")
        chat.expect("› Hello")
        assert said(tmp_path, "main") == []
        chat.type(" there\r")
        chat.expect("Thinking…")
        pipe.write_bytes(b"")
        chat.expect("Here.")
        quit_(chat)
    assert said(tmp_path, "main") == ["Instruction: Hello there", "Here."]


def test_quitting_does_not_wait_for_a_model_that_is_connected(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    scripted = program(tmp_path)
    with terminal([*scripted[:1], "--connecting", str(pipe), *scripted[1:]], tmp_path) as chat:
        quit_(chat)


def test_an_interrupt_from_outside_stops_the_answer_too(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once…"), tmp_path) as chat:
        chat.say("Tell me", "Once…")
        chat.process.send_signal(signal.SIGINT)
        chat.expect("stopped")
        quit_(chat)


def test_being_told_to_end_keeps_the_answer(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once…"), tmp_path) as chat:
        chat.say("Tell me", "Once…")
        chat.process.send_signal(signal.SIGTERM)
        assert chat.end() == 128 + signal.SIGTERM
        assert "Traceback" not in chat.shown
    assert said(tmp_path, "main") == ["Instruction: Tell me", "Once…"]


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("asked", ["›", "Allow note"])
def test_being_told_to_end_while_it_waits_for_a_line_is_no_mishap(
    tmp_path: Path, told: signal.Signals, asked: str
) -> None:
    with terminal(program(tmp_path, "→rope"), tmp_path) as chat:
        chat.expect("›")
        if asked != "›":
            chat.type("Note: rope\r")
            chat.expect(asked)
        chat.process.send_signal(told)
        assert chat.end() == 128 + told
        assert "Traceback" not in chat.shown
    assert notes(tmp_path) == ""


def test_a_number_too_long_for_a_message_is_something_to_say(tmp_path: Path) -> None:
    digits = "9" * 5000
    with terminal(program(tmp_path, "One.", "Two."), tmp_path) as chat:
        chat.say("Say a number", "One.")
        chat.expect("›")
        chat.type(f"/edit {digits}\r")
        chat.expect("Two.")
        quit_(chat)
    assert said(tmp_path, "main_fork_1") == [f"Instruction: {digits}", "Two."]


def test_after_a_kill_the_next_start_goes_on(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Once…"), tmp_path) as chat:
        chat.say("Tell me", "Once…")
        chat.process.kill()
        chat.end()
    with terminal(program(tmp_path, "Here."), tmp_path) as chat:
        chat.expect("1› Tell me")
        chat.say("Still there?", "Here.")
        quit_(chat)


def test_a_model_that_breaks_is_one_line_and_the_talk_goes_on(tmp_path: Path) -> None:
    with terminal(program(tmp_path), tmp_path) as chat:
        chat.say("Hello", "AssertionError: Model 'scripted' has 0 replies")
        quit_(chat)


def test_json_on_a_terminal_is_refused(tmp_path: Path) -> None:
    with terminal(["-m", "sennit", "chat", "--json"], tmp_path) as chat:
        chat.expect("--json needs piped input")
        assert chat.end() == 1


def test_a_tool_that_asks_is_called_once_it_is_allowed(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→rope", "Noted."), tmp_path) as chat:
        chat.expect("Tools: note (asks first).")
        chat.say("Note: rope", 'Allow note(text="rope")?')
        assert notes(tmp_path) == ""
        chat.say("y", '← "written"')
        chat.expect("Noted.")
        quit_(chat)
    assert notes(tmp_path) == "rope\n"
    assert said(tmp_path, "main")[-1] == "Noted."


def test_a_call_that_is_refused_is_not_made_and_the_model_hears_why(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→rope", "As you wish."), tmp_path) as chat:
        chat.say("Note: rope", "Allow note")
        chat.say("what?", "y, or n and a reason")
        chat.say("no, too long", "✗ Not run: denied. too long")
        chat.expect("As you wish.")
        quit_(chat)
    assert notes(tmp_path) == ""


def test_a_person_who_decides_is_shown_the_whole_call_in_its_order(tmp_path: Path) -> None:
    harmless = "word " * 40
    with terminal(program(tmp_path, f"→{harmless}\u202eand the end", "Noted."), tmp_path) as chat:
        chat.say("Note", "Allow note")
        chat.expect('and the end")?')
        chat.say("n", "Noted.")
        assert "\u202e" not in chat.shown
        quit_(chat)


def test_a_call_of_more_lines_than_the_terminal_has_is_shown_to_its_end(tmp_path: Path) -> None:
    text = " ".join(f"word{number}" for number in range(900))
    with terminal(program(tmp_path, f"→{text}", "Noted."), tmp_path, columns=40) as chat:
        chat.say("Note", "Allow note")
        shown = chat.expect('word899")?')
        assert shown.split()[1:] == text.split()[1:-1]
        chat.say("n", "Noted.")
        quit_(chat)
    assert notes(tmp_path) == ""


def test_characters_that_nobody_sees_are_named_to_who_decides(tmp_path: Path) -> None:
    hidden = "a\u200bb\u202ec\x7fd\U000e0041e"
    with terminal(program(tmp_path, f"→{hidden}", "Noted."), tmp_path) as chat:
        chat.say("Note", r'Allow note(text="a\u200bb\u202ec\u007fd\udb40\udc41e")?')
        chat.say("n", "Noted.")
        quit_(chat)


def test_one_decision_after_the_other(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→one", "→two", "Done."), tmp_path) as chat:
        chat.say("Note", 'Allow note(text="one")?')
        chat.say("y", 'Allow note(text="two")?')
        chat.say("n", "Done.")
        quit_(chat)
    assert notes(tmp_path) == "one\n"


def test_what_is_left_open_can_be_decided_later_by_a_command(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→rope", "Noted."), tmp_path) as chat:
        chat.say("/approve", "No tool call is waiting for approval.")
        chat.say("Note: rope", "Allow note")
        chat.expect("›")
        chat.type(CTRL_C)
        chat.expect("the call stays pending; /approve asks you again")
        chat.say("/approve", "Allow note")
        chat.say("yes", "Noted.")
        quit_(chat)
    assert notes(tmp_path) == "rope\n"


def test_what_waits_is_asked_about_at_the_next_start(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→rope"), tmp_path) as chat:
        chat.say("Note: rope", "Allow note")
        chat.process.kill()
        chat.end()
    with terminal(program(tmp_path, "Noted."), tmp_path) as chat:
        chat.expect("Allow note")
        chat.say("y", "Noted.")
        quit_(chat)
    assert notes(tmp_path) == "rope\n"


def test_what_is_typed_ahead_allows_nothing(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "Wait…", "→rope", "No."), tmp_path) as chat:
        chat.say("Tell me", "Wait…")
        chat.type("Note: rope\ry\r")  # said before there is a question
        chat.type(CTRL_C)
        chat.expect("Allow note")
        chat.say("n", "No.")
        quit_(chat)
    assert notes(tmp_path) == ""


def test_a_message_instead_of_a_decision_leaves_the_call_behind(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→rope", "Forgotten."), tmp_path) as chat:
        chat.say("Note: rope", "Allow note")
        chat.expect("›")
        chat.type(CTRL_D)
        chat.expect("the call stays pending")
        chat.say("Never mind", "Forgotten.")
        chat.say("/approve", "No tool call is waiting for approval.")
        quit_(chat)
    assert notes(tmp_path) == ""


def test_tools_lists_what_is_allowed_and_what_asks(tmp_path: Path) -> None:
    with terminal(program(tmp_path), tmp_path) as chat:
        chat.say("/tools", "note (asks you first)  Write something down.")
        quit_(chat)


def test_what_was_committed_is_shown_with_its_evidence_and_a_new_session_knows_it(
    tmp_path: Path,
) -> None:
    with terminal(program(tmp_path, "Nice to meet you."), tmp_path) as chat:
        chat.say("/memory", "No memories yet")
        chat.say("My name is Ada and I live in Lisbon.", "Nice to meet you.")
        chat.say("/commit", "committed: 2 created, by rules (archive_001)")
        chat.expect("My name is Ada.")
        chat.say("/commit", "Nothing to commit: there are no new messages.")
        chat.say("/memory", "viking://user/memories/profile.md")
        chat.expect("I live in Lisbon.")
        chat.expect("← user, 2")
        chat.expect("in chat: “My name is Ada and I live in Lisbon.”")
        quit_(chat)
    again = ["--session", "later", *program(tmp_path, "what you said")[1:]]
    with terminal([SCRIPTED_CHAT, *again], tmp_path) as chat:
        chat.expect("later (new)")
        chat.say("Hello!", "• My name is Ada.")
        quit_(chat)


def test_a_commit_that_takes_long_is_left_to_the_background_and_ends_before_the_program(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    held = [
        SCRIPTED_CHAT,
        "--held",
        str(pipe),
        *program(tmp_path, "Nice to meet you.", "Fine.")[1:],
    ]
    with terminal(held, tmp_path) as chat:
        chat.say("My name is Ada.", "Nice to meet you.")
        chat.say("/commit", "Extracting memories…")
        chat.type(CTRL_C)
        chat.expect("the commit continues in the background")
        chat.say("How are you?", "Fine.")
        chat.expect("›")
        chat.type(CTRL_D)
        chat.expect("Extracting memories…")
        pipe.write_bytes(b"")
        chat.expect("committed: 1 created, by rules (archive_001)")
        assert chat.end() == 0
    with sennit.open(tmp_path / "chat.db") as client:
        assert [one.text for one in client.memory.all()] == ["# Profile\n\n- My name is Ada.\n"]
        assert len(client.session("chat").current()) == 2


def test_a_narrow_terminal_breaks_lines_between_words(tmp_path: Path) -> None:
    story = "Once upon a time a rope was longer than the ship it held."
    with terminal(program(tmp_path, story), tmp_path, columns=40) as chat:
        chat.expect("commands. Ctrl-C stops\nan answer, Ctrl-D quits.\n")
        chat.say("Tell me", "Once upon a time a rope was longer than\nthe ship it held.")
        quit_(chat)
