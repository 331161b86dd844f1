"""Processes told apart: by boot, PID namespace, process id and start time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from sennit import process

linux = pytest.mark.skipif(not process.boot_id(), reason="the system tells no boot id")


def child(code: str) -> subprocess.Popen[str]:
    program = f"import sys; from sennit import process; {code}"
    return subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_this_process_is_alive() -> None:
    assert not process.is_gone(process.identity())


@linux
def test_another_process_is_gone_once_it_has_ended_and_not_before() -> None:
    with child("print(process.identity(), flush=True); sys.stdin.read()") as other:
        assert other.stdout is not None
        named = other.stdout.readline().strip()
        assert named != process.identity()
        assert not process.is_gone(named)
        other.kill()
        other.wait()
        assert process.is_gone(named)


@linux
def test_a_process_that_got_the_number_of_another_is_not_that_one() -> None:
    boot, namespace, pid, start = process.identity().split(".")
    assert process.is_gone(f"{boot}.{namespace}.{pid}.{int(start) + 1}")


@linux
def test_a_zombie_has_ended() -> None:
    with child("print(process.identity(), flush=True)") as other:
        assert other.stdout is not None
        named = other.stdout.readline().strip()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
        assert process.is_gone(named)


@linux
@pytest.mark.parametrize("part", [0, 1])
def test_a_process_of_another_boot_or_namespace_may_always_be_alive(part: int) -> None:
    parts = process.identity().split(".")
    parts[part] = "4026531999" if part else "00000000-0000-0000-0000-000000000000"
    parts[2] = "999999999"
    assert not process.is_gone(".".join(parts))


@pytest.mark.parametrize("named", ["", "a", "host/12", "a.b.c.d", "....", "x.y.1.2"])
def test_a_name_that_is_no_identity_is_never_called_dead(named: str) -> None:
    assert not process.is_gone(named)


@linux
def test_two_pid_namespaces_with_the_same_numbers_do_not_call_each_other_dead() -> None:
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    able = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    if able.returncode:
        pytest.skip("namespaces may not be made here")
    program = "from sennit import process; print(process.identity())"
    inside = subprocess.run(
        [*unshare, sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert inside.split(".")[0] == process.boot_id()
    assert not process.is_gone(inside)


def test_a_process_is_named_in_words() -> None:
    mine = process.identity()
    boot, namespace, pid, start = mine.split(".")
    assert process.in_words(mine) == "this program"
    assert process.in_words(f"{boot}.{namespace}.{int(pid) + 1}.{start}") == (
        f"process {int(pid) + 1} on this machine"
    )
    assert "another machine" in process.in_words(f"elsewhere.{namespace}.{pid}.{start}")
    assert "another machine" in process.in_words("somebody")
