"""The identity of this process, and whether another process is alive.

A process id alone says little: containers and machines reuse the same numbers and host names. So an
identity names the boot of the kernel, the PID namespace, the process id and the start time of the
process. Only if boot and namespace are ours can we look whether the process is gone; any other
process may be alive, whatever its name is.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_START_TIME = 19  # field 22 of /proc/PID/stat, counted behind the name in parentheses


@lru_cache(maxsize=1)
def boot_id() -> str:
    """The id of this boot of the kernel, the same in all its containers; "" if there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def monotonic_clock_id() -> str:
    """The name of the clock behind `time.monotonic`; processes with the same name share it.

    "" where the system does not tell: then monotonic times of two processes cannot be compared.
    """
    boot = boot_id()
    return f"{boot}/{_namespace('time')}" if boot else ""


def identity() -> str:
    """A name for this process that no other one ever has, for as long as it is told apart."""
    return _identity(os.getpid())


@lru_cache(maxsize=1)
def _identity(pid: int) -> str:
    return f"{boot_id() or 'unknown'}.{_namespace('pid')}.{pid}.{_start_time(pid) or 0}"


def is_gone(named: str) -> bool:
    """Return whether an identity is that of a process which has surely ended."""
    place, pid, start = _parts(named)
    if not boot_id() or place != _parts(identity())[0] or not pid.isdecimal():
        return False
    found = _start_time(int(pid))
    if found is not None:
        return found != start
    try:
        os.kill(int(pid), 0)  # /proc may be closed to us
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _parts(named: str) -> tuple[str, str, str]:
    """Boot and namespace; process id; start time."""
    boot, _, rest = named.partition(".")
    namespace, _, rest = rest.partition(".")
    pid, _, start = rest.partition(".")
    return f"{boot}.{namespace}", pid, start


def _namespace(kind: str) -> int:
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return 0


def _start_time(pid: int) -> str | None:
    """The start time of a process in ticks since the boot; None if it cannot be read.

    A zombie has none (""): it has ended, only its parent has not noticed yet.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[_START_TIME]
