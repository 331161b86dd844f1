"""After any changes, what is found is what stands on branches, in archives and in files.

Every text holds a word of its own. After each change all words that were ever used are looked for:
found are those that a branch, an archive or a memory holds, and the file that each hit names holds
the word too.
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sennit import Branch, Client, Message, NotFoundError, Session, SystemContent
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.postgres.store import PostgresStore
from sennit.stores.sqlite.store import SQLiteStore
from tests.postgres_server import Server
from tests.torture.lockstep import PHASES

pytest_plugins = ("tests.postgres",)

KEYS = st.sampled_from(["one", "two"])
PICK = st.integers(0, 1000)
WORD = re.compile(r"\bword\d+x\b")


class Findable(RuleBasedStateMachine):
    """A client whose sessions are changed in every way there is."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.store = self.new_store()
        self.client = self.new_client()
        self.words = 0
        self.popped: list[tuple[str, UUID]] = []
        self.commits: list[str] = []

    def new_store(self) -> Store:
        raise NotImplementedError

    def new_client(self) -> Client:
        return Client(self.store, user="ada", retention=timedelta(days=30))

    def teardown(self) -> None:
        self.client.close()
        self.folder.cleanup()

    def text(self) -> str:
        self.words += 1
        return f"I prefer word{self.words}x to coffee."

    def session(self, key: str) -> Session:
        session = self.client.session(key)
        if not session.branches:
            assert session.default_branch.name == "main"
        return session

    def branch(self, key: str, pick: int) -> Branch:
        branches = list(self.session(key).branches)
        return branches[pick % len(branches)]

    @rule(key=KEYS, pick=PICK)
    def say(self, key: str, pick: int) -> None:
        self.session(key).add_message("user", self.text(), branches=self.branch(key, pick))

    @rule(key=KEYS)
    def keep_on_no_branch(self, key: str) -> None:
        self.session(key).add_message(Message(SystemContent(system_message=self.text())))

    @rule(key=KEYS, pick=PICK)
    def pop(self, key: str, pick: int) -> None:
        branch = self.branch(key, pick)
        if len(branch) > (branch.system is not None):
            self.popped.append((key, branch.pop()))

    @rule(key=KEYS, pick=PICK)
    def take_out(self, key: str, pick: int) -> None:
        branch = self.branch(key, pick)
        first = int(branch.system is not None)
        if len(branch) > first:
            branch.remove(branch[first + pick % (len(branch) - first)])

    @precondition(lambda self: self.popped)
    @rule(pick=PICK)
    def put_back(self, pick: int) -> None:
        key, uid = self.popped.pop(pick % len(self.popped))
        session = self.session(key)
        main = session.default_branch
        if uid in session.messages and uid not in main:
            main.append(uid)

    @rule(key=KEYS, pick=PICK)
    def clear(self, key: str, pick: int) -> None:
        branch = self.branch(key, pick)
        del branch[int(branch.system is not None) :]

    @rule(key=KEYS, pick=PICK, at=PICK)
    def fork(self, key: str, pick: int, at: int) -> None:
        branch = self.branch(key, pick)
        first = int(branch.system is not None)
        if len(branch) > first:
            place = first + at % (len(branch) - first)
            branch.fork(at=place, system=True if at % 2 else None)

    @rule(key=KEYS, pick=PICK)
    def edit(self, key: str, pick: int) -> None:
        branch = self.branch(key, pick)
        if len(branch):
            branch.edit(pick % len(branch), self.text())

    @rule(key=KEYS, pick=PICK)
    def remove_branch(self, key: str, pick: int) -> None:
        self.session(key).remove_branch(self.branch(key, pick))

    @rule(key=KEYS, pick=PICK, some=st.booleans())
    def set_system(self, key: str, pick: int, some: bool) -> None:
        system = Message(SystemContent(system_message=self.text())) if some else None
        self.session(key).set_branch_system(self.branch(key, pick), system)

    @rule(key=KEYS, pick=PICK)
    def remove_message(self, key: str, pick: int) -> None:
        messages = list(self.session(key).messages)
        if messages:
            self.session(key).remove_message(messages[pick % len(messages)])

    @rule(key=KEYS, pick=PICK)
    def commit(self, key: str, pick: int) -> None:
        done = self.session(key).commit(branch=self.branch(key, pick))
        if done.task_id is not None:
            self.commits.append(done.task_id)

    @precondition(lambda self: self.commits)
    @rule(pick=PICK)
    def undo_commit(self, pick: int) -> None:
        with suppress(NotFoundError):  # its session was deleted
            self.client.undo_commit(self.commits[pick % len(self.commits)])

    @rule(pick=PICK)
    def forget_a_memory(self, pick: int) -> None:
        if known := self.client.memory.all():
            self.client.forget(uri=known[pick % len(known)].uri)

    @rule(key=KEYS)
    def delete_session(self, key: str) -> None:
        self.client.delete_session(key)

    @rule()
    def purge(self) -> None:
        self.client.purge()

    @rule()
    def reopen(self) -> None:
        if not isinstance(self.store, MemoryStore):
            self.client.close()
            self.store = self.new_store()
        self.client = self.new_client()

    def live(self) -> set[str]:
        """The words on branches, in archives and in memories."""
        texts = [one.text for one in self.client.memory.all()]
        for info in self.client.sessions():
            session = self.client.session(info.id)
            texts += [str(one.rendered) for branch in session.branches for one in branch.messages]
            root = f"viking://session/{info.key}/history"
            texts += [
                self.client.fs.read(f"{entry.uri}/messages.jsonl")
                for entry in self.client.fs.ls(root)
            ]
        return {word for text in texts for word in WORD.findall(text)}

    @invariant()
    def what_is_found_is_what_is_there(self) -> None:
        words = [f"word{number}x" for number in range(1, self.words + 1)]
        found: set[str] = set()
        for first in range(0, len(words), 50):  # a question has a limited number of words
            asked = " ".join(words[first : first + 50])
            for match in self.client.find(asked, limit=500):
                named = WORD.findall(match.abstract)
                found.update(named)
                said = self.client.fs.read(match.uri)
                assert all(word in said for word in named), match.uri
            for hit in self.client.search_messages(asked, limit=500):
                assert found.issuperset(WORD.findall(hit.snippet))
        assert found == self.live()


class InMemory(Findable):
    """The store in memory."""

    def new_store(self) -> Store:
        return MemoryStore()


class OnSQLite(Findable):
    """A SQLite file."""

    def new_store(self) -> Store:
        return SQLiteStore(Path(self.folder.name) / "s.db", durability="normal")


class OnPostgres(Findable):
    """A PostgreSQL server."""

    server: ClassVar[Server]
    database: ClassVar[str]

    def __init__(self) -> None:
        from tests.postgres import EMPTY_ALL  # a plugin: not to be imported before it is one

        self.server.execute(EMPTY_ALL, self.database)
        super().__init__()

    def new_store(self) -> Store:
        return PostgresStore(self.server.address(self.database))


@pytest.fixture(scope="module", autouse=True)
def server_of_postgres(shared_database: str, server: Server) -> None:
    OnPostgres.server, OnPostgres.database = server, shared_database


TestInMemory = pytest.mark.timeout(300)(InMemory.TestCase)
TestInMemory.settings = settings(max_examples=30, stateful_step_count=20, phases=PHASES)
TestOnSQLite = pytest.mark.timeout(300)(OnSQLite.TestCase)
TestOnSQLite.settings = settings(max_examples=20, stateful_step_count=20, phases=PHASES)
TestOnPostgres = pytest.mark.timeout(300)(OnPostgres.TestCase)
TestOnPostgres.settings = settings(max_examples=6, stateful_step_count=20, phases=PHASES)
