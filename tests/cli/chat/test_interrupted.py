"""A chat that was killed with kill -9: what the next one shows and offers, and never does twice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.chat.test_terminal import notes, program, quit_, said
from tests.cli.forking import run_forked
from tests.cli.terminals import SCRIPTED_CHAT, environment, terminal

NOT_KNOWN = 'note(text="rope") was running when the program ended: it may or may not have taken'


def killed_while_it_speaks(folder: Path) -> None:
    with terminal(program(folder, "Once upon a time…"), folder) as chat:
        chat.say("Tell me", "Once upon a time…")
        chat.process.kill()
        chat.end()


def options(folder: Path, *given: str, replies: tuple[str, ...] = ()) -> list[str]:
    return [SCRIPTED_CHAT, *given, str(folder / "chat.db"), *replies]


def killed_in_a_call(folder: Path, *given: str) -> None:
    """Leave a chat that died after the effect of a call that was allowed."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    stuck = options(folder, "--stuck", str(pipe), *given, replies=("→rope",))
    with terminal(stuck, folder) as chat:
        chat.say("Note: rope", "Allow note")
        chat.expect("›")
        chat.type("y\r")
        pipe.read_bytes()
        chat.process.kill()
        chat.end()
    assert notes(folder) == "rope\n"


def piped(folder: Path, lines: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_forked([*arguments], lines, environment(folder))


def test_words_that_were_shown_are_shown_again_and_resume_gives_the_answer_anew(
    tmp_path: Path,
) -> None:
    killed_while_it_speaks(tmp_path)
    with terminal(program(tmp_path, "Once there was a knot."), tmp_path) as chat:
        chat.expect("1› Tell me\nOnce upon a time…\nThe answer was interrupted: the program ended.")
        chat.expect("resume   discards this text and asks the model again")
        chat.expect("Resume, discard or later? r/d/l")
        chat.say("r", "Once there was a knot.")
        chat.say("/resume", "No answer was interrupted on this branch.")
        quit_(chat)
    assert said(tmp_path, "main") == ["Instruction: Tell me", "Once there was a knot."]


def test_a_word_that_is_no_choice_is_asked_about_again_and_nothing_is_decided(
    tmp_path: Path,
) -> None:
    killed_while_it_speaks(tmp_path)
    with terminal(program(tmp_path), tmp_path) as chat:
        chat.say("resum", "Resume, discard or later?")
        chat.say("", "(left as it is; /resume and /discard decide later)")
        quit_(chat)
    with terminal(program(tmp_path), tmp_path) as chat:
        chat.expect("Once upon a time…")
        chat.expect("Resume, discard or later?")
        chat.say("\x04", "left as it is")
        quit_(chat)
    assert said(tmp_path, "main") == ["Instruction: Tell me"]


def test_discard_takes_an_interrupted_answer_and_its_question_back(tmp_path: Path) -> None:
    killed_while_it_speaks(tmp_path)
    with terminal(program(tmp_path, "In short: once."), tmp_path) as chat:
        chat.expect("discard  removes the answer and gives you your message back to edit")
        chat.expect("›")
        chat.type("discard\r")
        chat.expect("Discarded. Your message is in the input line again.")
        chat.expect("› Tell me")
        chat.type(" briefly\r")
        chat.expect("In short: once.")
        chat.say("/resume", "No answer was interrupted on this branch.")
        quit_(chat)
    assert said(tmp_path, "main") == ["Instruction: Tell me briefly", "In short: once."]


def test_a_call_that_waits_is_discarded_too(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→rope"), tmp_path) as chat:
        chat.say("Note: rope", "Allow note")
        chat.expect("›")
        chat.type("\x03")
        chat.say("/discard", "Discarded.")
        chat.type("\x15/approve\r")
        chat.expect("No tool call is waiting for approval.")
        quit_(chat)
    assert said(tmp_path, "main") == []


def test_a_message_instead_of_resume_keeps_the_words(tmp_path: Path) -> None:
    killed_while_it_speaks(tmp_path)
    with terminal(program(tmp_path, "Sure."), tmp_path) as chat:
        chat.expect("later    leaves it as it is; a new message keeps it")
        chat.expect("›")
        chat.type("Go on\r")
        assert "Once" not in chat.expect("Sure.")
        quit_(chat)
    assert said(tmp_path, "main")[1:] == ["Once upon a time…", "Instruction: Go on", "Sure."]


def test_retry_after_a_kill_answers_on_a_fork_without_the_words(tmp_path: Path) -> None:
    killed_while_it_speaks(tmp_path)
    with terminal(program(tmp_path, "Another."), tmp_path) as chat:
        chat.say("/retry", "Another.")
        quit_(chat)
    assert said(tmp_path, "main_fork_1") == ["Instruction: Tell me", "Another."]


def test_an_interruption_is_shown_again_when_one_switches_to_its_branch(tmp_path: Path) -> None:
    killed_while_it_speaks(tmp_path)
    with terminal(program(tmp_path), tmp_path) as chat:
        chat.say("/fork idea", "a fork of main")
        chat.say("/switch main", "The answer was interrupted")
        chat.expect("Resume, discard or later?")
        chat.say("l", "/resume and /discard decide later")
        quit_(chat)


def test_a_call_that_was_running_is_told_and_resume_does_not_make_it_again(tmp_path: Path) -> None:
    killed_in_a_call(tmp_path)
    with terminal(program(tmp_path, "I do not know whether it is written."), tmp_path) as chat:
        chat.expect(NOT_KNOWN)
        chat.expect("resume   does not repeat the call")
        chat.expect("/retry asks the model again on a fork, which may repeat the call")
        chat.say("/approve", "No tool call is waiting for approval.")
        chat.expect(NOT_KNOWN)
        chat.say("/resume", "✗ Interrupted: the program ended while this ran")
        chat.expect("I do not know whether it is written.")
        quit_(chat)
    assert notes(tmp_path) == "rope\n"


@pytest.mark.parametrize("replay", ["ask", "safe"])
def test_a_call_that_may_be_repeated_is_asked_about_as_a_second_one(
    tmp_path: Path, replay: str
) -> None:
    killed_in_a_call(tmp_path, "--replay", replay)
    again = options(tmp_path, "--replay", replay, replies=("Written.",))
    with terminal(again, tmp_path) as chat:
        chat.expect(NOT_KNOWN)
        chat.expect("resume   asks you whether to repeat the call")
        chat.say("/resume", "was started before. It may have taken effect")
        chat.expect("Allow note")
        assert notes(tmp_path) == "rope\n"
        chat.say("y", "Written.")
        quit_(chat)
    assert notes(tmp_path) == "rope\nrope\n"


def test_retry_says_that_the_call_may_happen_twice_and_so_does_the_question(tmp_path: Path) -> None:
    killed_in_a_call(tmp_path)
    with terminal(program(tmp_path, "→rope", "Left alone."), tmp_path) as chat:
        chat.say("/retry", 'note(text="rope") was started in the answer above')
        chat.expect("it may happen twice")
        chat.expect('note(text="rope") was started before. It may have taken effect')
        chat.expect("Allow note")
        chat.say("n", "Left alone.")
        quit_(chat)
    assert notes(tmp_path) == "rope\n"


def test_a_model_that_asks_for_an_interrupted_call_again_is_told_apart(tmp_path: Path) -> None:
    killed_in_a_call(tmp_path)
    with terminal(program(tmp_path, "→rope", "Left alone."), tmp_path) as chat:
        chat.say("/resume", "was started before. It may have taken effect")
        chat.expect("Allow note")
        chat.say("n", "Left alone.")
        quit_(chat)
    assert notes(tmp_path) == "rope\n"


def test_a_call_that_has_returned_is_not_warned_about_when_the_model_makes_it_again(
    tmp_path: Path,
) -> None:
    with terminal(program(tmp_path, "→rope", "Noted.", "→rope", "Again."), tmp_path) as chat:
        chat.say("Note: rope", "Allow note")
        chat.say("y", "Noted.")
        chat.say("Note: rope, once more", "Allow note")
        chat.say("y", "Again.")
        quit_(chat)
        assert "was started before" not in chat.shown
    assert notes(tmp_path) == "rope\nrope\n"


def test_a_call_that_waited_is_not_asked_about_without_its_tool(tmp_path: Path) -> None:
    with terminal(program(tmp_path, "→rope"), tmp_path) as chat:
        chat.say("Note: rope", "Allow note")
        chat.process.kill()
        chat.end()
    with terminal(options(tmp_path, "--no-tools"), tmp_path) as chat:
        chat.expect("waits for your approval. This chat was started without its tool")
        quit_(chat)
    with terminal(program(tmp_path, "Noted."), tmp_path) as chat:
        chat.expect("Allow note")
        chat.say("y", "Noted.")
        quit_(chat)
    assert notes(tmp_path) == "rope\n"


def test_a_pipe_says_that_an_answer_was_interrupted_and_goes_on_after_it(tmp_path: Path) -> None:
    killed_while_it_speaks(tmp_path)
    done = piped(tmp_path, "Go on\n", *program(tmp_path, "Sure."))
    assert (done.returncode, done.stdout) == (0, "Sure.\n")
    assert "The answer was interrupted: the program ended." in done.stderr
    assert "Its text so far: Once upon a time…" in done.stderr
    assert "type /resume: sennit chat --session chat" in done.stderr
    assert said(tmp_path, "main")[1:] == ["Once upon a time…", "Instruction: Go on", "Sure."]
    assert "interrupted" not in piped(tmp_path, "", *program(tmp_path)).stderr


def test_a_pipe_says_that_a_call_may_have_taken_effect(tmp_path: Path) -> None:
    killed_in_a_call(tmp_path)
    done = piped(tmp_path, "Well?\n", *program(tmp_path, "Who knows."))
    assert (done.returncode, done.stdout) == (0, "Who knows.\n")
    assert NOT_KNOWN in done.stderr
    assert notes(tmp_path) == "rope\n"


def test_a_pipe_does_not_speak_over_a_call_that_waits_and_with_yes_leaves_it_undone(
    tmp_path: Path,
) -> None:
    assert piped(tmp_path, "Note: rope\n", *program(tmp_path, "→rope")).returncode == 3
    done = piped(tmp_path, "And now?\n", *program(tmp_path, "Not said."))
    assert (done.returncode, done.stdout) == (3, "")
    assert 'note(text="rope") waits for approval.' in done.stderr
    assert said(tmp_path, "main")[-1] != "Instruction: And now?"
    again = options(tmp_path, "--yes", replies=("→rope", "Noted."))
    done = piped(tmp_path, "Note: rope\n", *again)
    assert (done.returncode, done.stdout) == (0, "Noted.\n")
    assert 'note(text="rope") was waiting for approval and is not run.' in done.stderr
    assert notes(tmp_path) == "rope\n"


def test_a_pipe_killed_in_the_middle_of_an_answer_is_resumed_on_a_terminal(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, *program(tmp_path, "Once upon a time…")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(tmp_path),
    )
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"Tell me\n")
        process.stdin.close()
        shown = b""
        while not shown.endswith("…".encode()):
            shown += process.stdout.read(1)
        process.kill()
    with terminal(program(tmp_path, "There."), tmp_path) as chat:
        chat.expect("Once upon a time…\nThe answer was interrupted: the program ended.")
        chat.say("/resume", "There.")
        quit_(chat)
