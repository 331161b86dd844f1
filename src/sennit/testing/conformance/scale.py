"""Scale: long branches, deep chains of forks and many sessions, without recursion."""

from __future__ import annotations

from dataclasses import replace

from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    ChangeBranch,
    Write,
)
from sennit.testing.conformance.fixtures import (
    OWNER,
    Scenario,
    branch,
    empty,
    messages,
    same,
    segment,
    session,
)

_LONG = 10_000
_DEEP = 1_100  # deeper than Python lets calls be nested


def a_branch_of_ten_thousand_messages_comes_back(s: Scenario) -> None:
    texts = [*map(str, range(_LONG))]
    main = s.branch("main", texts).stored()
    same(s.load().history(main.id), list(s.ids(texts)), "The branch")
    heads = s.write(Append(main.id, s.ids(texts[-1000:]))).heads
    same(heads[0].length, _LONG - 1000, "Where a repeated append stands")
    new = s.changes({main.segment: _LONG - 2})
    same(list(new.messages), list(s.ids(texts[-2:])), "The messages given as changes")


def a_thousand_messages_can_be_erased_at_once(s: Scenario) -> None:
    texts = [*map(str, range(1001))]
    s.add(texts).erase(texts[:1000]).holds(texts[1000:])


def a_thousand_single_appends_all_land(s: Scenario) -> None:
    main, records = s.branch().stored().id, messages(*map(str, range(1000)))
    writes = [
        Write(OWNER, s.id, (AddMessages((record,)), Append(main, (record.id,))))
        for record in records
    ]
    for at in range(0, 1000, 100):
        s.store.write_many(writes[at : at + 100])
    same(s.load().history(main), [record.id for record in records], "The branch")


def a_chain_of_segments_deeper_than_the_stack_stands(s: Scenario) -> None:
    texts = [*map(str, range(_DEEP))]
    main = s.add(texts).branch().stored()
    chain = [segment(s.ids(texts[:1]))]
    for n in range(1, _DEEP):
        chain.append(segment(s.ids([texts[n]]), chain[-1].id, n))
    s.write(ChangeBranch(replace(main, segment=chain[-1].id), chain[0], tuple(chain[1:])))
    for at in range(100, _DEEP, 250):
        s.fork("main", f"fork {at}", at)
    same(len(s.changes({}).segments), _DEEP + 4, "Segments given as changes")
    heads = s.write(Append(main.id, s.ids(texts[:1]))).heads
    assert heads[0].length < 0, "A message at the root begins below the last segment."
    view = s.fork("main", "last").append("last", ["end"]).remove("main", "fork 100").load()
    same(view.texts("last"), [*texts, "end"], "The last fork")
    same(view.texts("fork 350"), texts[:350], "Another fork")
    s.remove("fork 350", "fork 600", "fork 850", "last").erase([*texts, "end"])
    empty("What is left when all are removed", s.load().segments, s.load().messages)


def a_session_may_have_a_thousand_branches(s: Scenario) -> None:
    parts = [segment() for _ in range(1000)]
    s.write(*(AddBranch(branch(f"b{n}", on), on) for n, on in enumerate(parts)))
    same(len(s.load().branches), 1000, "Branches")


def an_owner_may_have_hundreds_of_sessions(s: Scenario) -> None:
    for n in range(300):
        s.store.create_session(OWNER, session(key=f"chat {n}"))
    listed = s.store.list_sessions(OWNER, contains="chat", before=None, limit=1000)
    same(len({record.id for record in listed}), 300, "Sessions listed, each once")
    same(len(listed), 300, "Sessions listed")
