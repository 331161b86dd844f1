"""Branches: shared history, a system message of their own, grants, edits, a plain-list model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from sennit import (
    AccessError,
    AssistantResponseContent,
    Branch,
    ContextPart,
    ExistsError,
    InstructionContent,
    InvalidTypeError,
    Message,
    NotFoundError,
    Session,
    SystemContent,
    TextPart,
    ValidationError,
)
from sennit.containers import Progression
from sennit.messages import MessageGroup
from sennit.sessions.segments import tail_of
from tests.sessions.test_session import assistant, filled, said, system, user


def test_a_branch_is_a_progression_of_message_ids() -> None:
    session = Session()
    branch = filled(session, 3)
    assert isinstance(branch, Progression)
    assert [session.messages[uid] for uid in branch] == branch.messages
    assert branch[0] in branch
    assert branch.messages[1] in branch
    assert str(branch[2]) in branch
    assert "nonsense" not in branch
    assert branch.index(branch[2]) == 2
    assert branch[1:] == list(branch)[1:]
    assert branch[::-1] == list(branch)[::-1]


def test_a_part_of_a_branch_may_be_assigned_what_stands_there() -> None:
    session = Session()
    branch = filled(session, 12)
    session.set_branch_system(branch, system("Be brief."))
    fork = session.fork(branch, system=True)
    head, *ids = branch
    fork[2] = fork[2]
    assert list(fork) == [head, *ids]
    fork[1:] = reversed(fork[1:])
    assert list(fork) == [head, *ids[::-1]]
    fork[:] = [head, ids[1], ids[0]]
    assert list(fork) == [head, ids[1], ids[0]]
    fork[1:2] = [ids[1], ids[5]]
    assert list(fork) == [head, ids[1], ids[5], ids[0]]
    for wrong in ([ids[1], ids[1]], [ids[0]]):
        with pytest.raises(ExistsError, match="twice"):
            fork[1:2] = wrong
    with pytest.raises(ValidationError, match="stays first"):
        fork[:] = [ids[1], head]
    assert list(fork) == [head, ids[1], ids[5], ids[0]]
    assert list(branch) == [head, *ids]


def test_fork_shares_history_without_copying_it() -> None:
    session = Session()
    main = filled(session, 1000)
    fork = session.fork(main)
    assert tail_of(fork).base is tail_of(main)
    assert len(tail_of(fork)) == 0
    assert list(fork) == list(main)
    session.add_message(user("mine"), branches=fork)
    session.add_message(user("yours"), branches=main)
    assert said(fork)[-1] == "mine"
    assert said(main)[-1] == "yours"
    assert fork[:1000] == main[:1000]


def test_fork_at_a_message_or_an_index_keeps_all_up_to_and_including_it() -> None:
    session = Session()
    main = filled(session, 5)
    assert said(session.fork(main, at=1)) == ["message 0", "message 1"]
    assert said(session.fork(main, at=main[1])) == ["message 0", "message 1"]
    assert said(session.fork(main, at=main.messages[1])) == ["message 0", "message 1"]
    assert said(session.fork(main, at=-1)) == said(main)
    assert len(session.fork(main, at=0)) == 1


def test_fork_at_counts_the_system_message() -> None:
    session = Session()
    main = session.create_branch("main", system=system("S"))
    session.add_message(user("a"), branches=main)
    session.add_message(user("b"), branches=main)
    assert said(session.fork(main, at=0, system=True)) == ["S"]
    assert said(session.fork(main, at=1, system=True)) == ["S", "a"]
    assert said(session.fork(main, at=1)) == ["a"]


def test_the_system_message_is_never_duplicated_by_forks() -> None:
    session = Session()
    main = session.create_branch("main", system=system("S"))
    session.add_message(user("a"), branches=main)
    fork = session.fork(main, system=True)
    deeper = session.fork(fork, system=True)
    assert said(deeper) == ["S", "a"]
    assert len(session.messages) == 2
    assert said(session.fork(deeper, system=None)) == ["a"]
    assert said(session.fork(deeper, system=system("other"))) == ["other", "a"]
    assert main.system is not None
    assert said(session.fork(deeper, system=main.system.id)) == ["S", "a"]


def test_forks_get_no_grants_unless_told() -> None:
    session = Session()
    main = session.create_branch("main", resources={"gpt4"}, capabilities={"Report"})
    assert session.fork(main).resources == frozenset()
    assert session.fork(main).capabilities == frozenset()
    copied = session.fork(main, resources=True, capabilities=True)
    assert copied.resources == {"gpt4"}
    assert copied.capabilities == {"Report"}
    own = session.fork(main, resources={"claude"}, capabilities=set())
    assert own.resources == {"claude"}
    assert own.capabilities == frozenset()


def test_a_fork_records_where_it_came_from() -> None:
    session = Session()
    main = session.create_branch("main", system=system("S"))
    session.add_message(user("a"), branches=main)
    fork = session.fork(main, name="fork")
    origin = fork.metadata["forked_from"]
    assert origin == {
        "branch_id": str(main.id),
        "branch_name": "main",
        "created_at": main.created_at.isoformat().replace("+00:00", "Z"),
        "message_count": 2,
    }
    deeper = session.fork(fork, name="deeper")
    assert [point.branch_name for point in deeper.lineage()] == ["fork", "main"]
    assert deeper.lineage()[1].branch_id == main.id
    assert main.lineage() == ()


def test_lineage_keeps_the_last_known_ancestor_when_a_branch_is_removed() -> None:
    session = Session()
    main = filled(session, 1)
    middle = session.fork(main, name="middle")
    last = session.fork(middle, name="last")
    session.remove_branch(middle)
    assert [point.branch_name for point in last.lineage()] == ["middle"]


def test_a_renamed_branch_is_found_under_its_new_name_alone() -> None:
    session = Session()
    main = filled(session, 2)
    fork = session.fork(main, name="fork")
    deeper = session.fork(fork, name="deeper")
    fork.rename("a better try")
    assert (fork.name, list(fork)) == ("a better try", list(main))
    assert session.get_branch("a better try") is fork
    assert session.conversations.get_progression("a better try") is fork
    with pytest.raises(NotFoundError):
        session.get_branch("fork")
    assert [point.branch_name for point in deeper.lineage()] == ["a better try", "main"]
    assert (deeper.forked_from, main.forked_from) == (deeper.lineage()[0], None)
    assert deeper.metadata["forked_from"]["branch_name"] == "fork"  # as it was then
    assert session.create_branch("fork").name == "fork"
    fork.rename("a better try")
    assert session.fork(fork).name == "a better try_fork_1"


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("main", ExistsError, "already a branch named 'main'; choose another"),
        ("other", ExistsError, "already a branch named 'other'; choose another"),
        ("", ValidationError, "must not be empty"),
        ("a\0b", ValidationError, "NUL character at position 1"),
        ("ö" * 1001, ValidationError, "may have 2000 bytes, got 2002: 'öö"),
        ("\ud800", ValidationError, "lone surrogate"),
        (None, InvalidTypeError, "must be a string, got None"),
        (7, InvalidTypeError, "must be a string"),
    ],
)
def test_a_name_that_is_taken_or_no_name_is_refused_and_nothing_changes(
    name: Any, kind: type[Exception], why: str
) -> None:
    session = Session()
    fork = session.fork(filled(session, 1), name="fork")
    session.create_branch("other")
    with pytest.raises(kind, match=why):
        fork.rename(name)
    assert sorted(one.name for one in session.branches) == ["fork", "main", "other"]
    assert session.get_branch("fork") is fork


def test_main_keeps_its_name_and_another_may_become_main() -> None:
    session = Session()
    main = filled(session, 1)
    fork = session.fork(main, name="fork")
    with pytest.raises(ValidationError, match="fork it under the name 'other' instead"):
        main.rename("other")
    main.rename("main")
    assert session.default_branch is main
    session.remove_branch(main)
    fork.rename("main")
    assert session.default_branch is fork


def test_a_removed_branch_is_not_renamed() -> None:
    session = Session()
    gone = session.create_branch("gone")
    session.remove_branch(gone)
    with pytest.raises(NotFoundError):
        gone.rename("other")


def test_edit_forks_before_the_message_and_puts_the_new_version_there() -> None:
    session = Session()
    main = session.create_branch("main", system=system("S"), resources={"gpt4"})
    question = session.add_message(user("frist"), branches=main)
    session.add_message(assistant("answer"), branches=main)
    edited = main.edit(question, "first")
    assert said(edited) == ["S", "first"]
    assert said(main) == ["S", "frist", "answer"]
    assert edited.resources == {"gpt4"}
    assert edited.messages[1].metadata["edited_from"] == str(question.id)
    assert said(main.edit(question.id, InstructionContent(instruction="whole"))) == ["S", "whole"]
    assert said(main.edit(question.id, {"instruction": "dict"}, name="third"))[-1] == "dict"


def test_editing_with_words_keeps_the_rest_of_the_content() -> None:
    session = Session()
    main = session.create_branch("main")
    content = InstructionContent(instruction="old", images=["https://example.com/a.png"])
    message = session.add_message(Message(content), branches=main)
    new = main.edit(message, "new").messages[0].content
    assert new == InstructionContent(instruction="new", images=["https://example.com/a.png"])


def test_editing_the_system_message_keeps_the_history() -> None:
    session = Session()
    main = session.create_branch("main", system=system("old"))
    session.add_message(user("a"), branches=main)
    assert main.system is not None
    assert said(main.edit(main.system, "new")) == ["new", "a"]
    assert said(main) == ["old", "a"]


def test_regenerate_forks_before_the_answer() -> None:
    session = Session()
    main = session.create_branch("main", system=system("S"))
    question = session.add_message(user("q"), branches=main)
    answer = session.add_message(assistant("a"), branches=main)
    session.add_message(user("more"), branches=main)
    again = main.regenerate(answer)
    assert said(again) == ["S", "q"]
    assert said(main) == ["S", "q", "a", "more"]
    with pytest.raises(ValidationError, match="edit"):
        main.regenerate(question)
    with pytest.raises(NotFoundError):
        main.edit(user("elsewhere"), "x")


def test_a_refused_edit_leaves_no_branch_behind() -> None:
    session = Session()
    main = filled(session, 2)
    with pytest.raises(InvalidTypeError):
        main.edit(main[0], {"no_such_field": 1})
    with pytest.raises(ExistsError):
        main.edit(main[0], "x", name="main")
    assert len(session.branches) == 1
    assert len(session.messages) == 2


def test_grants_say_what_is_missing_and_what_is_allowed() -> None:
    session = Session()
    prod = session.create_branch("prod", resources={"gpt4"}, capabilities={"Approved"})
    prod.require(resources={"gpt4"}, capabilities={"Approved"})
    with pytest.raises(
        PermissionError, match=r"'prod' may not use 'claude'.* are 'gpt4'\."
    ) as caught:
        prod.require(resources={"claude"})
    assert isinstance(caught.value, AccessError)
    with pytest.raises(AccessError, match="capabilities"):
        prod.require(capabilities={"Wild"})
    prod.grant(resources={"claude"}, capabilities={"Wild"})
    prod.require(resources={"claude", "gpt4"}, capabilities={"Wild"})
    prod.revoke(resources={"gpt4"})
    with pytest.raises(AccessError):
        prod.require(resources={"gpt4"})


def test_an_empty_set_allows_nothing_and_a_star_allows_all_services() -> None:
    session = Session()
    closed = session.create_branch("closed")
    with pytest.raises(AccessError):
        closed.require(resources={"gpt4"})
    opened = session.create_branch("open", resources="*")
    opened.require(resources={"anything"})
    with pytest.raises(AccessError):
        opened.require(capabilities={"Report"})


def test_a_capability_is_named_after_its_model_class() -> None:
    from pydantic import BaseModel

    class Report(BaseModel):
        title: str

    branch = Session().create_branch("a", capabilities={Report})
    assert branch.capabilities == {"Report"}
    branch.require(capabilities=[Report])


@pytest.mark.parametrize("bad", ["gpt4", 3, {1}, [""], {"a": 1}])
def test_grants_that_are_not_sets_of_names_are_refused(bad: object) -> None:
    session = Session()
    with pytest.raises(ValidationError):
        session.create_branch("a", resources=bad)  # pyright: ignore
    with pytest.raises(ValidationError):
        session.create_branch("a", capabilities=bad)  # pyright: ignore
    assert len(session.branches) == 0


def test_a_branch_holds_an_id_once() -> None:
    session = Session()
    branch = filled(session, 2)
    with pytest.raises(ExistsError):
        branch.append(branch[0])
    with pytest.raises(ExistsError):
        branch[0] = branch[1]
    with pytest.raises(ExistsError):
        branch.extend([branch[0]])
    stored = session.add_message(user("new"))
    with pytest.raises(ExistsError):
        branch.extend([stored, stored])
    assert len(branch) == 2
    assert branch.include(branch[0]) is False


def test_a_branch_takes_only_messages_of_its_session() -> None:
    branch = filled(Session(), 1)
    stranger = user("stranger")
    for change in (branch.append, branch.include, lambda m: branch.insert(0, m)):
        with pytest.raises(NotFoundError, match="add_message"):
            change(stranger)
    assert len(branch) == 1


def test_rewriting_shared_history_changes_one_branch_alone() -> None:
    session = Session()
    main = filled(session, 6)
    fork = session.fork(main)
    main.move(0, 3)
    main.remove(main[1])
    fork.swap(0, 5)
    del fork[2]
    assert said(main) == [f"message {n}" for n in (1, 3, 0, 4, 5)]
    assert said(fork) == [f"message {n}" for n in (5, 1, 3, 4, 0)]


def test_the_system_message_stays_first() -> None:
    session = Session()
    branch = session.create_branch("main", system=system("S"))
    for text in "abc":
        session.add_message(user(text), branches=branch)
    branch.reverse()
    assert said(branch) == ["S", "c", "b", "a"]
    with pytest.raises(ValidationError, match="first"):
        branch.move(0, 2)
    with pytest.raises(ValidationError, match="first"):
        branch.swap(0, 1)
    other = session.add_message(system("T"))
    with pytest.raises(ValidationError):
        branch.insert(2, other)
    branch.append(other)
    assert said(branch) == ["T", "c", "b", "a"]
    branch.popleft()
    assert said(branch) == ["c", "b", "a"]


def test_forks_of_forks_of_forks_read_in_linear_work() -> None:
    session = Session()
    branch = filled(session, 1)
    for number in range(3000):
        branch = session.fork(branch)
        session.add_message(user(f"{number}"), branches=branch)
    assert len(list(branch)) == 3001
    assert len(branch.lineage()) == 3000
    assert str(session.tree()).count("\n") == 3000


def test_an_empty_fork_adds_no_depth() -> None:
    session = Session()
    main = filled(session, 3)
    branch = main
    for _ in range(50):
        branch = session.fork(branch)
    assert tail_of(branch).base is tail_of(main)


def test_a_dropped_branch_frees_its_own_segment() -> None:
    import gc
    import weakref

    session = Session()
    main = filled(session, 3)
    fork = session.fork(main)
    tail = weakref.ref(tail_of(fork))
    session.remove_branch(fork)
    del fork
    gc.collect()
    assert tail() is None


class Braid(RuleBasedStateMachine):
    """Branches driven at random beside plain lists that mean the same."""

    branches = Bundle("branches")

    def __init__(self) -> None:
        super().__init__()
        self.session = Session()
        self.model: dict[str, list[str]] = {}
        self.systems: dict[str, str | None] = {}
        self.count = 0

    def text(self, message: Message) -> str:
        content = message.content
        if isinstance(content, SystemContent):
            return str(content.system_message)
        assert isinstance(content, (InstructionContent, AssistantResponseContent))
        return str(content.to_dict().popitem()[1])

    def new(self) -> Message:
        self.count += 1
        return user(str(self.count))

    def index(self, name: str, number: int) -> int:
        return number % len(self.model[name])

    def offset(self, name: str) -> int:
        return 0 if self.systems[name] is None else 1

    @rule(target=branches)
    def create(self) -> str:
        name = self.session.create_branch().name
        self.model[name], self.systems[name] = [], None
        return name

    @rule(target=branches, source=branches, at=st.integers(0, 50), with_system=st.booleans())
    def fork(self, source: str, at: int, with_system: bool) -> str:
        history = self.model[source]
        index = None
        if history and at < 25:
            at %= len(history)
            index = at + self.offset(source)
            history = history[: at + 1]
        fork = self.session.fork(source, at=index, system=True if with_system else None)
        self.model[fork.name] = list(history)
        self.systems[fork.name] = self.systems[source] if with_system else None
        return fork.name

    @rule(name=branches)
    def add(self, name: str) -> None:
        message = self.new()
        self.session.add_message(message, branches=name)
        self.model[name].append(self.text(message))

    @rule(name=branches, other=branches)
    def attach_elsewhere(self, name: str, other: str) -> None:
        source = self.session.get_branch(other)
        if self.model[other]:
            message = source.messages[-1]
            self.session.add_message(message, branches=name)
            if self.text(message) not in self.model[name]:
                self.model[name].append(self.text(message))

    @rule(name=branches, number=st.integers(0, 100))
    def insert(self, name: str, number: int) -> None:
        at = number % (len(self.model[name]) + 1)
        message = self.session.add_message(self.new())
        self.session.get_branch(name).insert(at + self.offset(name), message)
        self.model[name].insert(at, self.text(message))

    @rule(name=branches, number=st.integers(0, 100))
    def remove(self, name: str, number: int) -> None:
        if self.model[name]:
            at = self.index(name, number)
            branch = self.session.get_branch(name)
            branch.remove(branch[at + self.offset(name)])
            del self.model[name][at]

    @rule(name=branches)
    def pop(self, name: str) -> None:
        if self.model[name]:
            self.session.get_branch(name).pop()
            self.model[name].pop()

    @rule(name=branches, one=st.integers(0, 100), two=st.integers(0, 100))
    def move(self, name: str, one: int, two: int) -> None:
        if self.model[name]:
            source, target = self.index(name, one), self.index(name, two)
            offset = self.offset(name)
            self.session.get_branch(name).move(source + offset, target + offset)
            history = self.model[name]
            history.insert(target, history.pop(source))

    @rule(name=branches)
    def reverse(self, name: str) -> None:
        self.session.get_branch(name).reverse()
        self.model[name].reverse()

    @rule(name=branches)
    def clear(self, name: str) -> None:
        self.session.get_branch(name).clear()
        self.model[name], self.systems[name] = [], None

    @rule(name=branches, some=st.booleans())
    def set_system(self, name: str, some: bool) -> None:
        self.count += 1
        message = system(f"system {self.count}") if some else None
        self.session.set_branch_system(name, message)
        self.systems[name] = None if message is None else self.text(message)

    @rule(name=branches, number=st.integers(0, 100))
    def erase(self, name: str, number: int) -> None:
        if self.model[name]:
            branch = self.session.get_branch(name)
            at = self.index(name, number)
            gone = self.model[name][at]
            self.session.remove_message(branch[at + self.offset(name)])
            for history in self.model.values():
                if gone in history:
                    history.remove(gone)

    @rule(a=branches, b=branches)
    def compare(self, a: str, b: str) -> None:
        found = self.session.diff(a, b)
        mine, other = self.model[a], self.model[b]
        common = 0
        while common < min(len(mine), len(other)) and mine[common] == other[common]:
            common += 1
        assert found.common == common
        assert [self.text(m) for m in found.since_a] == mine[common:]
        assert [self.text(m) for m in found.since_b] == other[common:]

    @precondition(lambda self: self.model)
    @invariant()
    def branches_equal_their_lists(self) -> None:
        for name, history in self.model.items():
            branch = self.session.get_branch(name)
            prompt = self.systems[name]
            expected = history if prompt is None else [prompt, *history]
            assert [self.text(m) for m in branch.messages] == expected
            assert len(branch) == len(expected)
            for at, uid in enumerate(branch):
                assert branch[at] == uid
                assert branch.index(uid) == at
                assert uid in branch


TestBraid = Braid.TestCase


@pytest.mark.parametrize("order", ["forward", "backward", "every second from the end"])
def test_taking_messages_off_a_fork_one_by_one_is_linear(order: str) -> None:
    def work(count: int) -> int:
        session = Session()
        fork = session.fork(filled(session, count))
        ids = list(fork)
        chosen = {"forward": ids, "backward": ids[::-1], "every second from the end": ids[::-2]}
        copied = 0
        before = tail_of(fork)
        for uid in chosen[order]:
            fork.remove(uid)
            if tail_of(fork) is not before:
                copied += len(tail_of(fork))
                before = tail_of(fork)
        return copied

    assert work(800) <= 2.5 * max(work(400), 1)


def test_branch_isinstance_and_repr_are_helpful() -> None:
    branch = filled(Session(), 2)
    assert isinstance(branch, Branch)
    assert "main" in repr(branch)


def test_single_services_cannot_be_revoked_where_all_are_granted() -> None:
    branch = Session().create_branch("open", resources="*")
    with pytest.raises(ValidationError, match="first"):
        branch.revoke(resources={"gpt4"})
    branch.require(resources={"gpt4"})
    branch.revoke(resources="*")
    with pytest.raises(AccessError):
        branch.require(resources={"gpt4"})


def test_a_removed_branch_does_not_change_any_more() -> None:
    session = Session()
    branch = filled(session, 2)
    stored = session.add_message(user("stored"))
    session.remove_branch(branch)
    for change in (
        lambda: branch.append(stored),
        branch.pop,
        lambda: branch.edit(branch[0], "x"),
        lambda: branch.grant(resources={"gpt4"}),
    ):
        with pytest.raises(NotFoundError, match="removed"):
            change()
    assert len(branch) == 2
    assert len(session.branches) == 0


def test_editing_keeps_what_was_used_and_noted() -> None:
    session = Session()
    group = session.add_message("user", [TextPart("hey"), ContextPart("viking://resources/a.md")])
    main = session.default_branch
    edited = main.edit(0, "hello").messages[0]
    assert edited.parts == [TextPart("hello"), ContextPart("viking://resources/a.md")]
    assert edited.metadata["edited_from"] == str(main[0])
    assert MessageGroup.of([edited]).id != group.id


def test_an_instruction_cannot_be_edited_into_a_system_message() -> None:
    session = Session()
    main = session.create_branch("main", system=system("S"))
    session.add_message(user("a"), branches=main)
    with pytest.raises(ValidationError, match="set_branch_system"):
        main.edit(1, SystemContent(system_message="T"))
    with pytest.raises(ValidationError, match="set_branch_system"):
        main.edit(0, InstructionContent(instruction="T"))
    assert len(session.branches) == 1


def test_two_system_messages_at_once_are_refused() -> None:
    session = Session()
    branch = filled(session, 1)
    both = [session.add_message(system("one")), session.add_message(system("two"))]
    with pytest.raises(ValidationError, match="one system message"):
        branch.extend(both)
    assert branch.system is None


def test_a_branch_forks_itself() -> None:
    session = Session()
    main = filled(session, 3)
    fork = main.fork(at=0, name="fork")
    assert said(fork) == ["message 0"]
    assert fork is session.get_branch("fork")
    with pytest.raises(ValidationError):
        main.fork(at=True)


def test_a_position_deep_in_a_chain_of_forks_is_found_in_few_steps() -> None:
    session = Session()
    branch = filled(session, 1)
    for number in range(1000):
        branch = session.fork(branch)
        session.add_message(user(f"{number}"), branches=branch)
    segment, steps = tail_of(branch), 0
    while segment.base is not None:
        jump = segment.jump
        segment = segment.base if jump is None else jump
        steps += 1
    assert steps <= 20
    assert [branch[at] for at in range(0, 1001, 97)] == list(branch)[::97]
    assert len(session.fork(branch, at=500)) == 501


def test_the_drawing_of_a_deep_tree_stays_narrow() -> None:
    session = Session()
    branch = filled(session, 1)
    for _ in range(500):
        branch = session.fork(branch)
    assert max(map(len, str(session.tree()).splitlines())) < 200


def test_a_branch_says_which_services_it_may_use() -> None:
    session = Session()
    some = session.create_branch("some", resources={"gpt4"})
    every = session.create_branch("every", resources="*")
    none = session.create_branch("none")
    assert [branch.may_use("gpt4") for branch in (some, every, none)] == [True, True, False]
    assert [branch.may_use("claude") for branch in (some, every, none)] == [False, True, False]
