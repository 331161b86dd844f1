"""Whatever one user does, another's sessions and memories stay as they are, and unseen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from sennit import Client, SennitError
from sennit.stores.memory import MemoryStore
from tests.memory.remembering import memories, talk

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

    def __init__(self, store: MemoryStore) -> None:
        self.client = Client(store, user="ada", agent="helper")
        talk(self.client.session("chat"), f"My name is {CANARY}.", f"I prefer {CANARY} to tea.")
        result = self.client.session("chat").commit()
        self.client.fs.write("viking://user/notes/secret.md", CANARY)
        self.client.fs.write("viking://agent/skills/secret.md", CANARY)
        self.ids = [result.task_id or "", str(self.client.session("chat").id)]

    def seen(self) -> Any:
        """All there is of them."""
        fs = self.client.fs
        files = {one.uri: (one, None if one.is_folder else fs.read(one.uri)) for one in fs.walk()}
        return files, memories(self.client), self.client.get_task(self.ids[0])


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


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_stranger_sees_and_changes_nothing(data: st.DataObject) -> None:
    store = MemoryStore()
    secrets = Secrets(store)
    before = secrets.seen()
    stranger = Client(store, user="bob", agent="stranger")
    talk(stranger.session("mine"), "I live in Lisbon.")
    for call in data.draw(st.lists(calls(secrets), min_size=1, max_size=12)):
        try:
            answer = call(stranger)
        except SennitError as error:
            answer = error
        assert CANARY not in repr(answer)
    assert secrets.seen() == before
