"""Whatever one user does, another's sessions and memories stay as they are, and unseen."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sennit import Client, SennitError
from sennit.memory.history.evidence import quote_messages
from sennit.memory.history.history import EvidenceSource
from sennit.memory.memory import engine_of
from sennit.memory.retrieval.prompt_context import MemoryContext
from sennit.stores.base import Store
from sennit.stores.in_memory.store import MemoryStore
from sennit.testing import ScriptedModel
from tests.memory.remembering import memories, store, talk

__all__ = ["store"]
pytest_plugins = ("tests.postgres",)
CANARY = "Xylophonia"
CASE = (
    f"The deploy failed with an error: the password {CANARY} was wrong.",
    "The solution was to take another name.",
)
_SCOPES = st.sampled_from(["user", "agent", "resources", "session"])
_NAMES = st.sampled_from(
    [
        "memories", "profile.md", "preferences", "secret.md", "notes", "chat", "history",
        "archive_001", "messages.jsonl", "skills", "cases", "patterns", "shared",
        "..", ".", "%2e%2e", "*", "**", "", "ada", "helper", "\0",
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
        talk(session, f"My name is {CANARY}.", f"I prefer {CANARY} to tea.", *CASE)
        result = session.commit()
        self.client.fs.write("viking://user/notes/secret.md", CANARY)
        self.client.fs.write("viking://agent/skills/secret.md", CANARY)
        self.client.fs.write("viking://agent/memories/cases/secret.md", f"{CANARY} name tea")
        self.client.fs.write("viking://resources/notes/secret.md", f"{CANARY} name tea")
        self.ids = [result.task_id or "", str(session.id)]
        self.source = EvidenceSource(session.id, next(iter(session.messages)).id)

    def seen(self) -> Any:
        """All there is of them."""
        fs = self.client.fs
        files = {one.uri: (one, None if one.is_folder else fs.read(one.uri)) for one in fs.walk()}
        # In a file of SQLite the order also depends on how common a word is among all users.
        found = sorted((one.uri, one.abstract) for one in self.client.find(CANARY, limit=50))
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
        st.just(lambda c: quote_messages(engine_of(c.memory).scope, [secrets.source])),
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


KINDS = ("another user", "the same agent", "an open shared space", "another tenant")
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
    where, user, agent = tenant, "bob", "stranger" if kind == "another user" else "helper"
    if kind == "another tenant":
        where, user, agent = f"{tenant}_else", "ada", "helper"
    shares = kind == "an open shared space"
    stranger = Client(store, tenant=where, user=user, agent=agent, shared_space=shares)
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


@pytest.mark.parametrize(
    ("store", "kind"),
    [
        *(("sqlite", kind) for kind in KINDS),
        ("postgres", "the same agent"),
        *(
            pytest.param("postgres", kind, marks=pytest.mark.slow)
            for kind in KINDS
            if "agent" not in kind
        ),
    ],
    indirect=["store"],
)
@settings(max_examples=6, suppress_health_check=_ONE_STORE)
@given(data=st.data())
def test_a_stranger_sees_and_changes_nothing_on_disk(
    store: Store, kind: str, data: st.DataObject
) -> None:
    _check(store, kind, data)


_SAID = st.sampled_from(
    [
        "My name is Ada and I live in Lisbon.",
        "My name is Bob and I live in Berlin.",
        "I prefer tea to coffee.",
        "I prefer coffee to tea.",
        "The deploy failed as the disk was full. The solution was to clear the cache.",
        "The deploy failed as the key was old. The fix was to make another key.",
        "Yesterday I signed the contract for the new flat.",
    ]
)
_KEYS = st.sampled_from(["chat", "work"])
_PLACES = st.sampled_from(
    [
        "viking://user/notes/tea.md",
        "viking://agent/skills/deploy.md",
        "viking://agent/memories/cases/deploy.md",
        "viking://resources/deploy/guide.md",
        "viking://resources/deploy",
        "viking://agent/memories",
        "viking://user",
        "viking://agent",
        "viking://resources",
    ]
)


def operations() -> st.SearchStrategy[Callable[[Client], Any]]:
    """Things that people do, whose answers hold no ids or times."""
    return st.one_of(
        st.tuples(_KEYS, _SAID).map(lambda two: lambda c: talk(c.session(two[0]), two[1])),
        _KEYS.map(lambda key: lambda c: c.session(key).commit()["counts"]),
        st.tuples(_PLACES, _SAID).map(lambda two: lambda c: c.fs.write(*two).version),
        _PLACES.map(lambda uri: lambda c: c.fs.rm(uri, recursive=True)),
        st.tuples(_PLACES, _PLACES).map(lambda two: lambda c: c.fs.mv(*two).uri),
        _PLACES.map(lambda uri: lambda c: c.forget(uri=uri)),
        _PLACES.map(lambda uri: lambda c: c.session("chat").used(contexts=[uri])),
        _KEYS.map(lambda key: lambda c: c.forget(session=key)),
        _KEYS.map(lambda key: lambda c: c.delete_session(key)),
        st.just(_undo_last),
        st.just(lambda c: c.forget(user=c.user)),
    )


def _undo_last(client: Client) -> Any:
    commits = client.memory.commits(client.session("chat"))
    return client.undo_commit(commits[0].id) if commits else None


def _seen(client: Client, *, exact: bool) -> Any:
    """All that a user can look at, without ids, times and scores."""
    kept = [
        (one.uri, one.version, one.active_count, client.fs.read(one.uri))
        for scope in ("user", "agent", "resources")
        for one in client.fs.walk(f"viking://{scope}")
        if not one.is_folder
    ]
    remembered = [
        (one.uri, one.text, one.version, one.did, one.active_count, len(one.evidence))
        for one in client.memory.all()
    ]
    found = [
        (one.uri, one.abstract, len(one.evidence))
        for one in client.find("Why did the deploy fail, and who likes tea?", limit=50)
    ]
    lines = [(one.uri, one.line) for one in client.fs.grep("deploy|tea", "viking://agent")]
    sent = [one.messages for one in _ask_about(client)] if exact else []
    return kept, remembered, found if exact else sorted(found), lines, client.fs.tree(), sent


def _ask_about(client: Client) -> Any:
    session, model = client.session(f"asked-{next(_tenants)}"), ScriptedModel(["Hm."])
    session.add_message("user", "Why did the deploy fail, and do I prefer tea?")
    session.conversation(model=model, contexts=[MemoryContext(client.memory)]).run()
    client.delete_session(session.id)
    return model.requests


def _done(call: Callable[[Client], Any], client: Client) -> Any:
    try:
        return call(client)
    except SennitError as error:
        return type(error), str(error)


def _lockstep(store: Store, data: st.DataObject, *, exact: bool) -> None:
    """Let two users of one agent do whatever is drawn, each beside a twin alone on a store."""
    tenant = f"tenant_{next(_tenants)}"
    users = ("ada", "bob")
    together = {user: Client(store, tenant=tenant, user=user, agent="helper") for user in users}
    alone = {
        user: Client(MemoryStore(), tenant=tenant, user=user, agent="helper") for user in users
    }
    steps = st.tuples(st.sampled_from(users), operations())
    for user, call in data.draw(st.lists(steps, min_size=1, max_size=14)):
        assert _done(call, together[user]) == _done(call, alone[user])
    for user in users:
        assert _seen(together[user], exact=exact) == _seen(alone[user], exact=exact)


@given(data=st.data())
def test_a_user_sees_what_they_would_see_alone(data: st.DataObject) -> None:
    _lockstep(MemoryStore(), data, exact=True)


@pytest.mark.parametrize("store", ["sqlite", "postgres"], indirect=True)
@settings(max_examples=10, suppress_health_check=_ONE_STORE)
@given(data=st.data())
def test_a_user_sees_what_they_would_see_alone_on_disk(store: Store, data: st.DataObject) -> None:
    # How results are ranked differs between kinds of stores; which there are does not.
    _lockstep(store, data, exact=False)


def test_undoing_a_commit_of_an_imported_archive_leaves_the_writers_memories(
    store: Store, tmp_path: Path
) -> None:
    """Whoever imports an archive has commits with the ids of whoever wrote it."""
    ada, bob = (Client(store, tenant="acme", user=name, agent="helper") for name in ("ada", "bob"))
    talk(ada.session("chat"), *CASE)
    task = ada.session("chat").commit().task_id or ""
    ada.export(tmp_path / "chat.zip")
    bob.import_sessions(tmp_path / "chat.zip")
    before = memories(ada)
    assert before
    for call in (
        lambda: bob.undo_commit(task),
        lambda: bob.forget(session="chat"),
        lambda: bob.forget(user="bob"),
    ):
        _done(lambda _, call=call: call(), bob)
        assert memories(ada) == before


def _agents_with_a_skill(store: Store) -> tuple[Client, Client]:
    """Two agents of one user, each with a skill of the same name that it has just used."""
    agents = (
        Client(store, user="ada", agent="coder"),
        Client(store, user="ada", agent="helper"),
    )
    for client in agents:
        client.fs.write("viking://agent/skills/search", f"How {client.agent} searches.")
        session = client.session(client.agent)
        session.add_message("user", "Where is the config?")
        session.used(
            contexts=["viking://agent/skills/search"], skill={"uri": "viking://agent/skills/search"}
        )
    return agents


def _uses(client: Client, uri: str = "viking://agent/skills/search") -> int:
    return client.fs.stat(uri).active_count


def test_removing_a_file_of_one_agent_leaves_the_uses_of_the_others(store: Store) -> None:
    coder, helper = _agents_with_a_skill(store)
    coder.fs.rm("viking://agent/skills/search")
    assert coder.session("coder").commit()["active_count_updated"] == 0
    assert helper.session("helper").commit()["active_count_updated"] == 1
    assert _uses(helper) == 2
    helper.fs.rm("viking://agent/skills/search")
    diff = json.loads(
        helper.fs.read("viking://session/helper/history/archive_001/memory_diff.json")
    )
    assert diff["used"] == {}


def test_moving_a_file_of_one_agent_leaves_the_uses_of_the_others(store: Store) -> None:
    coder, helper = _agents_with_a_skill(store)
    coder.fs.mv("viking://agent/skills/search", "viking://agent/skills/find")
    for client in (coder, helper):
        client.session(client.agent).commit()
    assert (_uses(coder, "viking://agent/skills/find"), _uses(helper)) == (2, 2)
    coder.fs.mv("viking://agent/skills/find", "viking://agent/skills/look")
    used = [
        json.loads(
            client.fs.read(f"viking://session/{client.agent}/history/archive_001/memory_diff.json")
        )["used"]
        for client in (coder, helper)
    ]
    assert used == [{"viking://agent/skills/look": 2}, {"viking://agent/skills/search": 2}]


def test_a_use_counts_for_the_agent_that_recorded_it_whoever_commits(store: Store) -> None:
    coder, helper = _agents_with_a_skill(store)
    result = helper.session("coder").commit()
    assert (_uses(coder), _uses(helper)) == (2, 0)
    helper.undo_commit(result.task_id or "")
    assert (_uses(coder), _uses(helper)) == (0, 0)
