"""Two branches side by side, and the tree of all."""

from __future__ import annotations

import pytest

from sennit import NotFoundError, Session
from tests.sessions.test_session import filled, said, system, user


def test_diff_gives_the_common_ancestor_and_what_each_side_has_since() -> None:
    session = Session()
    main = filled(session, 3)
    fork = session.fork(main, name="fork", at=1)
    session.add_message(user("only here"), branches=fork)
    found = session.diff("main", "fork")
    assert found.common == 2
    assert found.ancestor is main.messages[1]
    assert [m.id for m in found.since_a] == main[2:]
    assert [m.id for m in found.since_b] == fork[2:]
    assert found.same_system
    assert str(found).splitlines() == [
        "main and fork share 2 messages",
        "main: 1 since",
        "  user: Instruction: message 2",
        "fork: 1 since",
        "  user: Instruction: only here",
    ]


def test_branches_that_share_nothing_have_no_ancestor() -> None:
    session = Session()
    a, b = filled(session, 1, "a"), filled(session, 1, "b")
    found = session.diff(a, b)
    assert found.common == 0
    assert found.ancestor is None
    assert said(a) == [m.content.to_dict()["instruction"] for m in found.since_a]


def test_a_rewritten_branch_still_shares_what_it_has_in_common() -> None:
    session = Session()
    main = filled(session, 5)
    fork = session.fork(main)
    fork.swap(2, 3)
    assert session.diff(main, fork).common == 2


def test_system_messages_stand_apart() -> None:
    session = Session()
    main = filled(session, 2)
    fork = session.fork(main, system=system("S"))
    found = session.diff(main, fork)
    assert found.common == 2
    assert not found.same_system
    assert "system messages differ" in str(found)


def test_an_unknown_branch_is_named() -> None:
    session = Session()
    filled(session, 1)
    with pytest.raises(NotFoundError, match="'nowhere'"):
        session.diff("main", "nowhere")


def test_the_tree_is_drawn_for_people() -> None:
    session = Session()
    main = filled(session, 2)
    a = session.fork(main, name="a", at=0)
    session.fork(a, name="deep")
    session.fork(main, name="b")
    session.create_branch("apart")
    assert str(session.tree()).splitlines() == [
        "main (2 messages)",
        "├─ a (1 message, forked after 1)",
        "│  └─ deep (1 message, forked after 1)",
        "└─ b (2 messages, forked after 2)",
        "apart (0 messages)",
    ]
    assert [node.branch.name for node in session.tree()] == ["main", "a", "deep", "b", "apart"]


def test_a_branch_whose_origin_is_gone_stands_at_the_top() -> None:
    session = Session()
    main = filled(session, 1)
    session.fork(main, name="orphan")
    session.remove_branch(main)
    assert [node.branch.name for node in session.tree().roots] == ["orphan"]
