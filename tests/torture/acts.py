"""Things done to a store that must be whole or not at all, and the scene they are done in.

Each act is done on the same scene: a session with a fork, a system message and a lease, another
one, and an empty one. `steps` says how many changes of the store an act is made of: one, but for
the few that go session by session and are finished by doing them again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from sennit import (
    Branch,
    Client,
    ImagePart,
    InstructionContent,
    Message,
    Session,
    SystemContent,
    TextPart,
    ToolPart,
    clock,
    ids,
)
from sennit.memory.memory import engine_of
from sennit.memory.retrieval.embedders import VectorIndex, WordEmbedder
from sennit.messages.codec import loads
from sennit.sessions import segments
from sennit.sessions.records import message_record
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.records.sessions import (
    AddEvents,
    AddMessages,
    Append,
    Change,
    EventRecord,
    Lease,
    PutRun,
    RunRecord,
    TakeLease,
    Write,
)

NOON = 1_700_000_000_000_000_000
HOUR = 3_600_000_000


@contextmanager
def replaying(seed: int) -> Generator[None]:
    """Make the same times and ids inside the block, whoever runs it and how often.

    The clock stands still there, a second after that of the seed before.
    """
    latest = ids._latest
    ids._random.seed(seed)
    ids._latest = 0
    try:
        with clock.wall_clock_from(lambda: NOON + seed * 10**9):
            yield
    finally:
        ids._random.seed()
        ids._latest = latest


@contextmanager
def tiny_pieces() -> Generator[None]:
    """Rewrite histories in pieces so small that a short one has several."""
    before, segments._MIN_PIECE_SIZE = segments._MIN_PIECE_SIZE, 1
    try:
        yield
    finally:
        segments._MIN_PIECE_SIZE = before


@dataclass(frozen=True)
class Act:
    """Something done to a client whose session "chat" is open."""

    name: str
    perform: Callable[[Client, Session], object]
    steps: int = 1


def instruction(text: str) -> Message:
    return Message(InstructionContent(instruction=f"knot {text}"))


def set_the_scene(client: Client) -> None:
    """What there is before any act."""
    session = client.session("chat", resources={"gpt4"})
    main = session.default_branch
    session.set_branch_system(main, Message(SystemContent(system_message="knot system")))
    for number in range(4):
        session.add_message("user", f"knot {number}")
        session.add_message("assistant", f"knot answer {number}")
    side = session.fork(main, at=5, name="side", system=True, resources=True)
    session.add_message("user", "knot beside", branches=side)
    session.add_message(instruction("loose"))
    session.add_message("user", "knot taken back")
    session.default_branch.pop()
    client.session("empty")
    other = client.session("other")
    other.add_message("user", "knot elsewhere")
    client.search_messages("knot")
    session.add_message("user", "knot unindexed")
    client._store.acquire(client._owner, session.id, main.id, "before", HOUR)
    run = RunRecord(ids.new_id(), main.id, "ended", 1, 2, b"{}")
    events = tuple(EventRecord(seq, run.id, main[seq], b'["text","knot"]') for seq in (1, 2))
    changes = [PutRun(run, 1), AddEvents(main.id, events, 1)]
    client._store.write(client._owner, session.id, changes)
    _remember(client, other)


def _remember(client: Client, session: Session) -> None:
    """A file in two versions, and a session that was committed and has something new since."""
    for said in ("knot", "knot again"):
        client.fs.write("viking://resources/knot.md", said)
    session.add_message("user", "My name is Ada. I prefer knots to tea.")
    session.used(contexts=["viking://resources/knot.md"])
    session.commit()
    session.add_message("user", "My sister is called Grace. I prefer tea to knots now.")


def write_archive(path: Path) -> None:
    """An archive of two sessions, one of them with a fork."""
    with Client(MemoryStore(), user="someone") as client:
        for name in ("brought", "along"):
            session = client.session(name)
            for number in range(3):
                session.add_message("user", f"knot {name} {number}")
            session.fork("main", at=1, name="fork")
        client.export(path)


def _add_parts(client: Client, session: Session) -> None:
    parts = [TextPart("knot"), *(ToolPart("tie", {"n": n}, output=n) for n in range(4))]
    session.add_message("assistant", [*parts, TextPart("knot done")])


def _add_picture(client: Client, session: Session) -> None:
    """Store the bytes, in two transactions, and then the message that names them."""
    picture = ImagePart(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10_000)
    session.add_message("user", [TextPart("knot"), picture])


def _add_on_two(client: Client, session: Session) -> None:
    session.add_message(instruction("on both"), branches=["main", "side"])


def _edit(client: Client, session: Session) -> None:
    session.default_branch.edit(4, "knot otherwise", name="edited")


def _edit_system(client: Client, session: Session) -> None:
    session.default_branch.edit(0, "knot other system", name="edited")


def _insert_first(client: Client, session: Session) -> None:
    """Take over what a fork shares, which is copied."""
    with tiny_pieces():
        session.default_branch.insert(1, session.get_branch("side")[-1])


def _insert_first_beside(client: Client, session: Session) -> None:
    """Take over what nobody shares, which is moved."""
    with tiny_pieces():
        session.get_branch("side").insert(1, session.default_branch[-1])


def _attach(client: Client, session: Session) -> None:
    """Put the message on a branch that stood on none; it was indexed past."""
    (loose,) = [one for one in session.messages if "knot loose" in str(one.rendered)]
    session.default_branch.append(loose)


def _set_system(client: Client, session: Session) -> None:
    session.set_branch_system("main", Message(SystemContent(system_message="knot new")))


def _create_branch(client: Client, session: Session) -> None:
    session.create_branch("new", system=Message(SystemContent(system_message="knot")))


def _now(job: Callable[[], object]) -> object:
    return job()


def _grant(client: Client, session: Session) -> None:
    session.default_branch.grant(resources={"search"}, capabilities={"Report"})


def group(client: Client, session: Session) -> list[Write]:
    """What async callers would have gathered: appends to two sessions."""
    found: list[Write] = []
    for at, home in enumerate([session, client.session("other")] * 2):
        message, branch = instruction(f"gathered {at}"), home.default_branch
        changes = (AddMessages((message_record(message),)), Append(branch.id, (message.id,)))
        found.append(Write(client._owner, home.id, changes))
    return found


def _write_group(client: Client, session: Session) -> None:
    client._store.write_many(group(client, session))


def _write_group_with_a_refused_one(client: Client, session: Session) -> None:
    writes = group(client, session)
    lost = Write(client._owner, ids.new_id(), writes[0].changes)
    client._store.write_many([*writes, lost])


def _acquire(client: Client, session: Session) -> None:
    branch = session.get_branch("side")
    client._store.acquire(client._owner, session.id, branch.id, "holder", HOUR)


def _renew(client: Client, session: Session) -> None:
    lease = Lease(session.default_branch.id, "before", 1, 0)
    client._store.renew(client._owner, session.id, lease, HOUR)


def _release(client: Client, session: Session) -> None:
    lease = Lease(session.default_branch.id, "before", 1, 0)
    client._store.release(client._owner, session.id, lease)


def noted(branch: Branch, after: int) -> tuple[Change, ...]:
    """A step of a run on a branch that is held, or about to be."""
    message = instruction("noted")
    run = RunRecord(ids.new_id(), branch.id, "running", 1, 2, b"{}")
    numbers = (after + 1, after + 2)
    events = tuple(EventRecord(seq, run.id, message.id, b'["text","knot"]') for seq in numbers)
    return (
        AddMessages((message_record(message),)),
        Append(branch.id, (message.id,)),
        PutRun(run, 1),
        AddEvents(branch.id, events, 1),
    )


def begun(branch: Branch) -> tuple[Change, ...]:
    """The first step of a run, which takes its branch."""
    return TakeLease(branch.id, "holder", HOUR), *noted(branch, 0)


def _note(client: Client, session: Session) -> None:
    client._store.write(client._owner, session.id, noted(session.default_branch, 2))


def _write_group_of_runs(client: Client, session: Session) -> None:
    steps = (noted(session.default_branch, 2), begun(session.get_branch("side")))
    writes = [Write(client._owner, session.id, changes) for changes in steps]
    client._store.write_many([*writes, *group(client, session)])


def _use(client: Client, session: Session) -> None:
    uri = "viking://agent/skills/tie"
    session.used(contexts=["viking://resources/knot.md"], skill={"uri": uri, "input": "knot"})


def _undo(client: Client, session: Session) -> None:
    other = client.session("other")
    done = loads(client.fs.read("viking://session/other/history/archive_001/.done"))
    assert done["task_id"]
    client.undo_commit(done["task_id"])
    assert other.current()


def _import(client: Client, session: Session) -> None:
    with TemporaryDirectory() as folder:
        write_archive(Path(folder) / "archive.zip")
        client.import_sessions(Path(folder) / "archive.zip")


ACTS = {
    act.name: act
    for act in [
        Act("create a session", lambda client, _: client.session("new", metadata={"a": 1})),
        Act("first append", lambda c, _: c.session("empty").add_message("user", "knot")),
        Act("append", lambda _, session: session.add_message("user", "knot more")),
        Act("append to two branches", _add_on_two),
        # The bytes are stored first; until the message is there too, nothing is to be seen.
        Act("append with a picture", _add_picture, steps=2),
        Act("append of many", _add_parts),
        Act("keep a message on no branch", lambda _, s: s.add_message(instruction("loose"))),
        Act("create a branch", _create_branch),
        Act("fork", lambda _, session: session.fork("main", at=3, name="new", system=True)),
        Act("edit", _edit),
        Act("edit the system message", _edit_system),
        Act("regenerate", lambda _, session: session.default_branch.regenerate(4, name="new")),
        Act("move", lambda _, session: session.default_branch.move(2, 5)),
        Act("remove in the middle", lambda _, s: s.default_branch.remove(s.default_branch[3])),
        Act("insert at the beginning", _insert_first),
        Act("insert at the beginning of a fork", _insert_first_beside),
        Act("take back the end", lambda _, s: s.default_branch.__delitem__(slice(6, None))),
        Act("put on a branch again", _attach),
        Act("erase what was removed", lambda c, s: c._store.erase_removed(c._owner, s.id, 2**62)),
        Act("set the system message", _set_system),
        Act("grant", _grant),
        Act("erase a message", lambda _, s: s.remove_message(s.default_branch[2])),
        Act("erase the system message", lambda _, s: s.remove_message(s.default_branch[0])),
        Act("erase several messages", lambda _, s: s.remove_messages(s.default_branch[1:4])),
        Act("describe", lambda _, s: s.describe({"title": "knot"})),
        Act("rename a branch", lambda _, s: s.rename_branch("side", "knot")),
        Act("remove a branch", lambda _, session: session.remove_branch("main")),
        Act("delete a session", lambda client, _: client.delete_session("chat")),
        Act("search", lambda client, _: client.search_messages("knot"), steps=0),
        Act(
            "embed",
            lambda c, _: VectorIndex(engine_of(c.memory).scope, WordEmbedder(), _now).embed(),
            steps=0,
        ),
        Act("write a group", _write_group),
        Act("write a group with a refused one", _write_group_with_a_refused_one),
        Act("write a group of runs", _write_group_of_runs),
        Act("acquire a lease", _acquire),
        Act("renew a lease", _renew),
        Act("release a lease", _release),
        Act("note a run", _note),
        Act("record a use", _use),
        # First archived, then remembered.
        Act("commit", lambda client, _: client.session("other").commit(), steps=2),
        # Quotations go first, then what other sessions note of memories, before and after them.
        Act("undo a commit", _undo, steps=6),
        Act("write a file", lambda c, _: c.fs.write("viking://user/notes/knot.md", "knot")),
        Act("write a file again", lambda c, _: c.fs.write("viking://resources/knot.md", "knot 3")),
        Act(
            "move a file",
            lambda c, _: c.fs.mv("viking://resources/knot.md", "viking://user/k.md"),
            steps=4,
        ),
        Act(
            "remove a file",
            lambda client, _: client.fs.rm("viking://resources/knot.md"),
            steps=4,
        ),
        # What came from the session goes first, then the session.
        Act("forget a session", lambda client, _: client.forget(session="other"), steps=7),
        Act("label", lambda _, s: s.label(s.default_branch[2], 0.5, by="ann")),
        # Each session is first made, then filled.
        Act("import", _import, steps=4),
        Act("expire", lambda client, _: client.expire(datetime(2100, 1, 1, tzinfo=UTC)), steps=3),
    ]
}
OPEN = "open a new store"
