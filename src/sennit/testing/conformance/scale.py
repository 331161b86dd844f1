"""Scale: long branches, deep chains of forks and many sessions, without recursion."""

from __future__ import annotations

from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    Change,
    MessageRecord,
    RemoveBranch,
    RemoveMessages,
    Write,
)
from sennit.testing.conformance.fixtures import (
    OWNER,
    StoreFixture,
    branch,
    empty,
    ids,
    message,
    messages,
    same,
    segment,
    session,
)

_LONG = 10_000
_DEEP = 1_100  # deeper than Python lets calls be nested


def _long(scene: StoreFixture) -> list[MessageRecord]:
    records, on = messages(*map(str, range(_LONG))), segment()
    main = branch("main", on)
    scene.write(AddMessages(tuple(records)), AddBranch(main, on), Append(main.id, ids(records)))
    return records


def _chain(scene: StoreFixture) -> None:
    """Create a chain of forks, each with one message of its own."""
    changes: list[Change] = []
    base = None
    for n in range(_DEEP):
        one = message(f"{n}")
        on = segment((one.id,), base, n)
        changes += [AddMessages((one,)), AddBranch(branch(f"fork {n}", on), on)]
        base = on.id
    scene.write(*changes)


def a_branch_of_ten_thousand_messages_comes_back(store: Store) -> None:
    scene = StoreFixture(store)
    records = _long(scene)
    view = scene.load()
    same(view.history(view.named("main").id), list(ids(records)), "The branch")


def a_long_branch_is_found_again_when_its_append_is_repeated(store: Store) -> None:
    scene = StoreFixture(store)
    records = _long(scene)
    main = scene.load().named("main")
    heads = scene.write(Append(main.id, ids(records[-1000:])))
    same(heads[0].length, _LONG - 1000, "Where the repeated append stands")


def of_a_long_branch_only_the_end_is_new(store: Store) -> None:
    scene = StoreFixture(store)
    records = _long(scene)
    main = scene.load().named("main")
    new = scene.changes({main.segment: _LONG - 2})
    same(list(new.messages), list(ids(records[-2:])), "The messages given")


def a_thousand_single_appends_all_land(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main")
    records = messages(*map(str, range(1000)))
    writes = [
        Write(OWNER, scene.id, (AddMessages((record,)), Append(main.id, (record.id,))))
        for record in records
    ]
    for at in range(0, 1000, 100):
        store.write_many(writes[at : at + 100])
    same(scene.load().history(main.id), list(ids(records)), "The branch")


def a_chain_of_forks_deeper_than_the_stack_loads(store: Store) -> None:
    scene = StoreFixture(store)
    _chain(scene)
    view = scene.load()
    same(len(view.branches), _DEEP, "Branches")
    same(view.texts(f"fork {_DEEP - 1}"), [f"{n}" for n in range(_DEEP)], "The last fork")
    same(len(scene.changes({}).segments), _DEEP, "Segments given as changes")


def a_chain_of_forks_can_be_appended_to_at_its_end(store: Store) -> None:
    scene = StoreFixture(store)
    _chain(scene)
    view = scene.load()
    last = view.named(f"fork {_DEEP - 1}")
    root = view.history(last.id)[0]
    heads = scene.write(Append(last.id, (root,)))
    assert heads[0].length < 0, "A message at the root begins below the last fork's segment."
    scene.append(last.id, "end")
    same(len(scene.load().history(last.id)), _DEEP + 1, "Messages on the last fork")


def a_chain_of_forks_stands_when_all_but_the_last_are_removed(store: Store) -> None:
    scene = StoreFixture(store)
    _chain(scene)
    *others, last = scene.load().branches
    scene.write(*(RemoveBranch(uid) for uid in others[::2]))
    scene.write(*(RemoveBranch(uid) for uid in others[1::2]))
    view = scene.load()
    same(list(view.branches), [last], "Branches left")
    same(len(view.history(last)), _DEEP, "Messages the last fork shows")
    scene.write(RemoveBranch(last), RemoveMessages(tuple(view.messages)))
    after = scene.load()
    empty("What is left when it is removed too", after.segments, after.messages)


def a_thousand_messages_can_be_erased_at_once(store: Store) -> None:
    scene = StoreFixture(store)
    records = scene.say(*map(str, range(1001)))
    scene.forget(*records[:1000])
    same(list(scene.load().messages), [records[1000].id], "Messages left")


def a_session_may_have_a_thousand_branches(store: Store) -> None:
    scene = StoreFixture(store)
    parts = [segment() for _ in range(1000)]
    scene.write(*(AddBranch(branch(f"b{n}", on), on) for n, on in enumerate(parts)))
    same(len(scene.load().branches), 1000, "Branches")


def an_owner_may_have_hundreds_of_sessions(store: Store) -> None:
    for n in range(300):
        store.create_session(OWNER, session(key=f"chat {n}"))
    listed = store.list_sessions(OWNER, contains="chat", before=None, limit=1000)
    same(len(listed), 300, "Sessions listed")
    same(len({record.id for record in listed}), 300, "Sessions listed, each once")
