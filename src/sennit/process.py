"""Process identity: a unique name of this process, and a liveness check of others.

A process id alone is ambiguous: containers and machines reuse the same numbers and host names. So
an identity consists of the kernel's boot id, the PID namespace, the process id and the start time
of the process. A process can be checked only if its boot id and namespace are ours; any other is
assumed to be alive.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_START_TIME_FIELD = 19  # field 22 of /proc/PID/stat, as an index after the name in parentheses


@lru_cache(maxsize=1)
def boot_id() -> str:
    """Return the kernel's boot id, which all its containers share; "" if there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


@lru_cache(maxsize=1)
def monotonic_clock_id() -> str:
    """Return an id of the clock behind `time.monotonic`; processes with the same id share it.

    "" if it is unknown: then monotonic times of two processes cannot be compared.
    """
    boot = boot_id()
    return f"{boot}/{_namespace('time')}" if boot else ""


def identity() -> str:
    """Return the unique identity of this process."""
    return _identity(os.getpid())


@lru_cache(maxsize=1)
def _identity(pid: int) -> str:
    return f"{boot_id() or 'unknown'}.{_namespace('pid')}.{pid}.{_start_time(pid) or 0}"


def is_gone(process: str) -> bool:
    """Return whether the process with this identity has certainly ended."""
    namespace, pid, start = _split_identity(process)
    if not boot_id() or namespace != _split_identity(identity())[0] or not pid.isdecimal():
        return False
    actual_start = _start_time(int(pid))
    if actual_start is not None:
        return actual_start != start
    try:
        os.kill(int(pid), 0)  # /proc may be unreadable
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def in_words(process: str) -> str:
    """Return a process as people name it: this one, one of this machine, or one elsewhere."""
    if process == identity():
        return "this program"
    place, pid, _ = _split_identity(process)
    if boot_id() and place == _split_identity(identity())[0] and pid.isdecimal():
        return f"process {pid} on this machine"
    return "a program on another machine or in another container"


def _split_identity(process: str) -> tuple[str, str, str]:
    """Return boot id with namespace, process id, and start time."""
    boot, _, rest = process.partition(".")
    namespace, _, rest = rest.partition(".")
    pid, _, start = rest.partition(".")
    return f"{boot}.{namespace}", pid, start


def _namespace(kind: str) -> int:
    try:
        return os.stat(f"/proc/self/ns/{kind}").st_ino
    except OSError:
        return 0


def _start_time(pid: int) -> str | None:
    """Return the start time of a process in ticks since boot; None if it cannot be read.

    "" for a zombie: it has ended, but its parent has not waited for it yet.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[_START_TIME_FIELD]
