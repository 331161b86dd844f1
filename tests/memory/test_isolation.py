"""Whatever one user does, another's sessions and memories stay as they are, and unseen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sennit import Client, SennitError
from sennit.memory.context import MemoryContext
from sennit.memory.evidence import said_in
from sennit.memory.history import Source
from sennit.stores.base import Store
from sennit.stores.memory import MemoryStore
from sennit.testing import ScriptedModel
from tests.memory.remembering import memories, store, talk

__all__ = ["store"]
pytest_plugins = ("tests.postgres",)
CANARY = "Xylophonia"
_SCOPES = st.sampled_from(["user", "agent", "session"])
_NAMES = st.sampled_from(
    [
        "memories", "profile.md", "preferences", "secret.md", "notes", "chat", "history",
        "archive_001", "messages.jsonl", "..", ".", "%2e%2e", "*", "**", "", "ada", "helper", "\0",
    ]
)  # fmt: skip
_URIS = st.builds(
    lambda scope, names: "/".join([f"viking://{scope}", *names]),
    _SCOPES,
    st.lists(_NAMES, max_size=4),
)


class Secrets:
    """Ada's client, with what nobody else may see or change."""

    def __init__(self, store: Store, tenant: str) -> None:
        self.client = Client(store, tenant=tenant, user="ada", agent="helper")
        session = self.client.session("chat")
        talk(session, f"My name is {CANARY}.", f"I prefer {CANARY} to tea.")
        result = session.commit()
        self.client.fs.write("viking://user/notes/secret.md", CANARY)
        self.client.fs.write("viking://agent/skills/secret.md", CANARY)
        self.ids = [result.task_id or "", str(session.id)]
        self.source = Source(session.id, next(iter(session.messages)).id)

    def seen(self) -> Any:
        """All there is of them."""
        fs = self.client.fs
        files = {one.uri: (one, None if one.is_folder else fs.read(one.uri)) for one in fs.walk()}
        found = [(one.uri, one.abstract) for one in self.client.find(CANARY)]
        return files, memories(self.client), self.client.get_task(self.ids[0]), found


def _ask(client: Client) -> Any:
    """A turn with memory; gives what the model was sent."""
    session, model = client.session("mine"), ScriptedModel(["Hm."], name="asked")
    session.add_message("user", f"Who is {CANARY[:4]}, and what name has the tea?")
    session.default_branch.grant(resources={model.name})
    contexts = [MemoryContext(client.memory)]
    session.conversation(session.default_branch, model=model, contexts=contexts).run()
    return model.requests


def calls(secrets: Secrets) -> st.SearchStrategy[Callable[[Client], Any]]:
    """Things a stranger may try."""
    ids = st.sampled_from(secrets.ids)
    uri = _URIS | ids.map(lambda uid: f"viking://session/{uid}/messages.jsonl")
    return st.one_of(
        uri.map(lambda u: lambda c: c.fs.read(u)),
        uri.map(lambda u: lambda c: c.fs.ls(u)),
        uri.map(lambda u: lambda c: c.fs.tree(u)),
        uri.map(lambda u: lambda c: c.fs.glob(u)),
        uri.map(lambda u: lambda c: c.fs.grep("X", u)),
        uri.map(lambda u: lambda c: c.fs.write(u, "mine")),
        uri.map(lambda u: lambda c: c.fs.rm(u, recursive=True)),
        st.tuples(uri, uri).map(lambda two: lambda c: c.fs.mv(*two)),
        uri.map(lambda u: lambda c: c.memory.history(u)),
        uri.map(lambda u: lambda c: c.forget(uri=u)),
        uri.map(lambda u: lambda c: c.session("mine").used(contexts=[u])),
        uri.map(lambda u: lambda c: c.memory.get(u)),
        uri.map(lambda u: lambda c: c.fs.stat(u)),
        uri.map(lambda u: lambda c: c.fs.abstract(u)),
        uri.map(lambda u: lambda c: c.fs.mkdir(u)),
        uri.map(lambda u: lambda c: c.find(f"{CANARY} name tea", target_uri=u)),
        st.just(lambda c: c.find(f"{CANARY} name tea", explain=True)),
        st.just(lambda c: c.find("name", at=datetime.now(UTC))),
        st.just(lambda c: c.search(f"Who is {CANARY}?", session="mine")),
        st.just(lambda c: c.search_messages(CANARY)),
        ids.map(lambda uid: lambda c: c.search("name?", session=UUID(uid))),
        st.just(lambda c: c.session("mine").context(query=f"{CANARY} name tea")),
        st.just(lambda c: c.memory.at(datetime.now(UTC))),
        st.just(lambda c: said_in(c.memory.realm, [secrets.source])),
        st.just(_ask),
        ids.map(lambda uid: lambda c: c.delete_session(UUID(uid))),
        ids.map(lambda uid: lambda c: c.get_task(uid)),
        ids.map(lambda uid: lambda c: c.undo_commit(uid)),
        ids.map(lambda uid: lambda c: c.retry_task(uid)),
        ids.map(lambda uid: lambda c: c.forget(session=UUID(uid))),
        ids.map(lambda uid: lambda c: c.session(uid, create=False)),
        st.sampled_from(["ada", "bob"]).map(lambda user: lambda c: c.forget(user=user)),
        st.just(lambda c: c.session("mine").commit()),
        st.just(lambda c: c.finish_commits()),
        st.just(lambda c: c.memory.all()),
    )


KINDS = ("another user", "another tenant")
_tenants = count()  # so that all examples can do with one store
_ONE_STORE = [HealthCheck.function_scoped_fixture]


def _is_silent(answer: Any) -> bool:
    """Whether an answer says nothing of another's; that it repeats a question is no news."""
    told = repr(answer).replace(f"Who is {CANARY}?", "").replace(f"{CANARY} name tea", "")
    return CANARY not in told


def _check(store: Store, kind: str, data: st.DataObject) -> None:
    """Let a stranger do whatever is drawn."""
    tenant = f"tenant_{next(_tenants)}"
    secrets = Secrets(store, tenant)
    before = secrets.seen()
    where, user, agent = tenant, "bob", "stranger"
    if kind == "another tenant":
        where, user, agent = f"{tenant}_else", "ada", "helper"
    stranger = Client(store, tenant=where, user=user, agent=agent)
    talk(stranger.session("mine"), "I live in Lisbon.")
    for call in data.draw(st.lists(calls(secrets), min_size=1, max_size=12)):
        try:
            answer = call(stranger)
        except SennitError as error:
            answer = error
        assert _is_silent(answer)
    assert secrets.seen() == before


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_stranger_sees_and_changes_nothing(kind: str, data: st.DataObject) -> None:
    _check(MemoryStore(), kind, data)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
@settings(max_examples=6, suppress_health_check=_ONE_STORE)
@given(data=st.data())
def test_a_stranger_sees_and_changes_nothing_on_disk(
    store: Store, kind: str, data: st.DataObject
) -> None:
    _check(store, kind, data)
