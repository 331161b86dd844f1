"""Windows and macOS lack calls that Linux has; each of ours is guarded, and works without them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
"""Modules that Windows does not have."""
NAMES = {
    module: set(names.split())
    for module, names in {
        "os": """O_BINARY O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK O_SYNC chown confstr fchdir
            fchmod fchown fdatasync fork forkpty getegid geteuid getgid getgroups getloadavg getpgid
            getpgrp getuid initgroups killpg lchown mkfifo mknod nice openpty pread preadv pwrite
            pwritev register_at_fork sched_getaffinity sched_setaffinity sendfile setegid seteuid
            setgid setgroups setpgid setsid setuid startfile statvfs sync sysconf ttyname uname
            wait wait3 wait4""",
        "signal": """SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1
            SIGUSR2 SIGWINCH alarm pthread_kill pthread_sigmask setitimer sigwait""",
        "socket": "AF_UNIX SO_REUSEPORT TCP_KEEPIDLE send_fds recv_fds",
        "time": "clock_gettime clock_gettime_ns tzset",
        "select": "epoll kqueue poll",
    }.items()
}
"""Names that Windows or macOS does not have, by module."""


def sources() -> list[Path]:
    return sorted((ROOT / "src").rglob("*.py"))


def unguarded(tree: ast.Module) -> Iterator[str]:
    """Uses of such names outside `if hasattr(module, "name")`, and imports outside `try`."""
    allowed: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Try):
            allowed.update(node.body)
        if isinstance(node, ast.If) and "hasattr(" in (test := ast.unparse(node.test)):
            for inner in (one for part in node.body for one in ast.walk(part)):
                if isinstance(inner, ast.Attribute) and repr(inner.attr) in test:
                    allowed.add(inner)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                if name in NAMES.get(module, ()) and node not in allowed:
                    yield f"{module}.{name}, line {node.lineno}"
            case ast.Import(names=names) if node not in allowed:
                yield from (f"import {one.name}" for one in names if one.name in MODULES)
            case ast.ImportFrom(module=str(module), names=names) if node not in allowed:
                if module in MODULES or any(one.name in NAMES.get(module, ()) for one in names):
                    yield f"from {module} import …, line {node.lineno}"
            case _:
                pass


def test_the_scan_sees_what_is_unguarded() -> None:
    bad = "import fcntl\nos.fork()\nif hasattr(os, 'sync'):\n    os.sync()\n    os.fork()\n"
    assert sorted(unguarded(ast.parse(bad))) == [
        "import fcntl",
        "os.fork, line 2",
        "os.fork, line 5",
    ]


def test_no_call_of_one_system_is_without_a_guard() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {use}"
        for path in sources()
        for use in unguarded(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set()


ELSEWHERE = """
import asyncio, builtins, io, os, pathlib, signal, sys
import anyio, hashlib, msgspec, platformdirs, pydantic
import rich.progress, sqlite3, subprocess, typer, zipfile
import prompt_toolkit.input.defaults, uvicorn

for module, names in NAMES.items():
    if module not in ("os", "signal"):
        continue  # what asyncio needs here
    for name in names:
        if hasattr(sys.modules.get(module), name):
            delattr(sys.modules[module], name)

real_import = builtins.__import__
def guarded(name, globals=None, locals=None, fromlist=(), level=0):
    if name in MODULES and str((globals or {}).get("__name__", "")).startswith("sennit"):
        raise ImportError("No module named " + name, name=name)
    return real_import(name, globals, locals, fromlist, level)
builtins.__import__ = guarded

def only_here(real):
    def call(path, *more, **options):
        if str(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "There is no such file here", str(path))
        return real(path, *more, **options)
    return call
os.stat, io.open = only_here(os.stat), only_here(io.open)

def no_signals(*_):
    raise NotImplementedError
loop = type(asyncio.new_event_loop())
loop.add_signal_handler = loop.remove_signal_handler = no_signals

import sennit
from sennit.process import boot_id, identity, is_gone
from sennit.server.http.tokens import add_token, new_token, read_tokens
from sennit.services.local.engine import default_threads
from sennit.testing.scripted_model import ScriptedModel

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
assert boot_id() == ""
assert not is_gone(identity()) and not is_gone("unknown.0.1.0")
assert default_threads() >= 1
with sennit.open(folder / "a.db") as client:
    session = client.session("rope")
    main = session.create_branch("main")
    said = session.conversation(main, model=ScriptedModel(["A bowline."])).say("Name a knot")
    session.commit()
    client.fs.write("viking://resources/a.md", "hemp")
    client.fs.export(folder / "files")
    client.fs.import_folder(folder / "files")
    client.export(folder / "a.zip")
    client.backup(folder / "b.db")
    assert not client.doctor()
with sennit.open(folder / "c.db") as other:
    assert other.import_sessions(folder / "a.zip").new_messages == 2
add_token(folder / "tokens", new_token(tenant="t", user="u")[1])
assert len(read_tokens(folder / "tokens")) == 1
from typer.testing import CliRunner
from sennit.cli.app import app
shown = CliRunner().invoke(app, ["show", "rope", "--store", str(folder / "a.db")])
assert "A bowline." in shown.stdout, shown.output
chat = CliRunner().invoke(app, ["chat", "--help"])
assert chat.exit_code == 0
print("works")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there, nothing has to be taken away")
def test_all_works_without_the_calls_that_other_systems_lack(tmp_path: Path) -> None:
    names = f"NAMES = {NAMES!r}\nMODULES = {MODULES!r}\nFOLDER = {str(tmp_path)!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", names + ELSEWHERE],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=50,
    )
    assert done.stdout.strip() == "works", done.stderr


def test_every_file_is_opened_with_its_encoding() -> None:
    """Windows would take the code page of the user's language."""
    found: list[str] = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            is_text = not any(isinstance(one, str) and "b" in one for one in texts)
            named = {one.arg for one in node.keywords}
            opens = name == "open" or name.endswith((".write_text", "os.fdopen"))
            if opens and is_text and "encoding" not in named and "mode" not in named:
                found.append(f"{path.relative_to(ROOT)}, line {node.lineno}: {ast.unparse(node)}")
    assert found == []
