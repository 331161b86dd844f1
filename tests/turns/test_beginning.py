"""The beginning of a run on a store: its branch is taken, looked at, and then written to."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Sequence
from threading import Event
from typing import Any

import pytest

from sennit import Client, ConflictError, SennitError
from sennit.sessions.branch import LeaseTerms
from sennit.sessions.plan import BranchPlan
from sennit.sessions.repository import repository_of
from sennit.sessions.run_repository import RunRepository
from sennit.stores.base import Store
from sennit.stores.records.sessions import BranchHead, TakeLease, Write
from sennit.testing import ScriptedModel
from sennit.turns.branch_lease import new_holder
from sennit.turns.conversation import ConversationSession
from sennit.turns.result import Return
from sennit.turns.special.definition import SpecialTurn
from tests.conversation_fixtures import in_short
from tests.torture.ground import opened

pytest_plugins = ("tests.durable",)
_TTL = 60_000_000


@pytest.fixture
def clients(address: str) -> Generator[tuple[Client, Client]]:
    """Two programs on one store."""
    with opened(address) as one, opened(address) as other:
        yield one, other


class Talk:
    """A conversation of one program."""

    def __init__(self, client: Client, *replies: str) -> None:
        self.session = client.session("chat", resources="*")
        self.branch = self.session.default_branch
        self.model = ScriptedModel(list(replies))
        self.conversation: ConversationSession = self.session.conversation(
            self.branch, model=self.model
        )

    def say(self, text: str, at: int | None = None) -> Return:
        return asyncio.run(self.conversation.asay(text, at=at))

    def mentions(self, text: str) -> None:
        """Put something on the branch, without a run."""
        self.session.refresh()
        self.session.add_message("user", text, branches=self.branch)

    @property
    def said(self) -> list[str]:
        self.session.refresh()
        return [in_short(message) for message in self.branch.messages]


class Slow:
    """A store's group writes, the next of which waits until it is let go."""

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.began, self.go, self.groups = Event(), Event(), list[Sequence[Write]]()
        store: Store = client._store
        write_many = store.write_many

        def slow(writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
            self.groups.append(writes)
            self.began.set()
            self.go.wait(30)
            return write_many(writes)

        monkeypatch.setattr(store, "write_many", slow)


def first(group: Sequence[Write]) -> Any:
    return group[0].changes[0]


def test_a_run_that_nobody_interferes_with_is_written_in_three_steps(
    clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk(clients[0], "One.", "Two.")
    counted = Slow(clients[0], monkeypatch)
    counted.go.set()
    for text in ("First?", "Second?"):
        assert talk.say(text).stop_reason == "stable"
    assert len(counted.groups) == 6
    assert isinstance(first(counted.groups[0]), TakeLease)
    assert isinstance(first(counted.groups[3]), TakeLease)


def test_programs_that_take_turns_hear_each_other(clients: tuple[Client, Client]) -> None:
    one, other = Talk(clients[0], "a", "c"), Talk(clients[1], "b", "d")
    for talk, text in ((one, "1"), (other, "2"), (one, "3"), (other, "4")):
        assert talk.say(text).stop_reason == "stable"
    expected = ["user 1", "says a", "user 2", "says b", "user 3", "says c", "user 4", "says d"]
    assert one.said == other.said == expected
    asked = one.model.requests[-1].messages
    assert [message["content"] for message in asked] == ["1", "a", "2", "b", "3"]


def test_what_somebody_said_meanwhile_is_shown_to_the_model(
    clients: tuple[Client, Client],
) -> None:
    one, other = Talk(clients[0], "a", "b"), Talk(clients[1])
    one.say("1")
    other.mentions("by the way")
    assert one.say("2").stop_reason == "stable"
    asked = one.model.requests[-1].messages
    assert [message["content"] for message in asked] == ["1", "a", "by the way", "2"]


def test_a_run_that_was_to_begin_elsewhere_is_refused_and_says_nothing(
    clients: tuple[Client, Client],
) -> None:
    one, other = Talk(clients[0], "a", "b"), Talk(clients[1])
    one.say("1")
    other.mentions("by the way")
    refused = one.say("2", at=2)
    assert (refused.stop_reason, refused.notices[0].code) == ("invalid", "moved")
    assert one.said == ["user 1", "says a", "user by the way"]
    assert one.say("2", at=3).stop_reason == "stable"  # the branch is free


def test_a_branch_that_another_program_holds_is_refused(clients: tuple[Client, Client]) -> None:
    one, other = Talk(clients[0], "a", "b"), Talk(clients[1])
    one.say("1")
    runs = RunRepository(other.branch)
    lease = runs.acquire("elsewhere/1/x", _TTL)
    refused = one.say("2")
    assert (refused.stop_reason, refused.notices[0].code) == ("invalid", "busy")
    assert one.said == ["user 1", "says a"]
    runs.release(lease)
    assert one.say("2").stop_reason == "stable"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["alone", "somebody spoke"])
def test_a_run_cancelled_while_it_begins_leaves_the_branch_free(
    clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    one, other = Talk(clients[0], "a", "b", "c"), Talk(clients[1])
    one.say("1")
    if elsewhere:
        other.mentions("by the way")
    slow = Slow(clients[0], monkeypatch)

    async def cancelled() -> Return:
        saying = asyncio.create_task(one.conversation.asay("2"))
        await asyncio.to_thread(slow.began.wait, 30)
        one.conversation.cancel()
        slow.go.set()
        return await saying

    result = asyncio.run(cancelled())
    assert result.stop_reason == "cancelled"
    known = ["user 1", "says a"]
    assert one.said == ([*known, "user by the way"] if elsewhere else known)
    RunRepository(other.branch).release(RunRepository(other.branch).acquire("other", _TTL))
    assert one.say("3").stop_reason == "stable"


@pytest.mark.parametrize("end", ["as known", "somebody spoke", "held"])
def test_what_is_said_to_a_run_that_is_about_to_begin_is_kept(
    clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    one, other = Talk(clients[0], "a", "b", "c"), Talk(clients[1])
    one.say("1")
    if end == "somebody spoke":
        other.mentions("by the way")
    elif end == "held":
        RunRepository(other.branch).acquire("elsewhere/1/x", _TTL)
    slow = Slow(clients[0], monkeypatch)

    async def steered() -> Return:
        saying = asyncio.create_task(one.conversation.asay("2"))
        await asyncio.to_thread(slow.began.wait, 30)
        one.conversation.steer("3")
        slow.go.set()
        return await saying

    result = asyncio.run(steered())
    assert result.stop_reason == ("invalid" if end == "held" else "stable")
    said = one.said[2:]
    assert said.count("user 3") == 1
    assert ("user 2" in said) == (end != "held")


@pytest.mark.parametrize("elsewhere", [False, True], ids=["alone", "somebody spoke"])
def test_a_special_turn_waits_for_a_run_that_is_about_to_begin(
    clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch, elsewhere: bool
) -> None:
    one, other = Talk(clients[0], "a", "b", "c"), Talk(clients[1])
    one.say("1")
    if elsewhere:
        other.mentions("by the way")
    aside = SpecialTurn(instruction="Sum up.", model=ScriptedModel(["all of it"], name="aside"))
    one.branch.grant(resources={"aside"})

    async def both() -> tuple[Return, Return]:
        slow = Slow(clients[0], monkeypatch)
        saying = asyncio.create_task(one.conversation.asay("2"))
        await asyncio.to_thread(slow.began.wait, 30)
        turn = asyncio.create_task(one.conversation.execute_special_turn(aside))
        slow.go.set()
        return await saying, await turn

    ran, turned = asyncio.run(both())
    assert (ran.stop_reason, turned.stop_reason) == ("stable", "stable")
    assert one.said.count("says all of it") == 1


def test_two_runs_begun_at_once_are_kept_apart(clients: tuple[Client, Client]) -> None:
    one = Talk(clients[0], "a", "b", "c")
    one.say("1")
    twin: ConversationSession = one.session.conversation(one.branch, model=one.model)

    async def both() -> list[Return]:
        return list(await asyncio.gather(one.conversation.asay("2"), twin.asay("3")))

    ends = sorted(str(result.stop_reason) for result in asyncio.run(both()))
    assert ends == ["invalid", "stable"]
    assert len(one.said) == 4


def test_a_store_that_refuses_the_beginning_refuses_the_run(
    clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Talk(clients[0], "a", "b")
    one.say("1")
    store: Store = clients[0]._store
    failed = ConflictError("no")

    def refuse(writes: Sequence[Write]) -> list[list[BranchHead] | SennitError]:
        return [failed] * len(writes)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_many", refuse)
        assert one.say("2").stop_reason == "invalid"
    assert one.said == ["user 1", "says a"]
    assert one.say("2").stop_reason == "stable"


@pytest.mark.parametrize("ttl", [_TTL, 1])
def test_a_branch_made_with_a_lease_is_its_makers_from_the_first_moment(
    clients: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch, ttl: int
) -> None:
    ours, theirs = clients

    async def made() -> tuple[Return, Return]:
        slow = Slow(ours, monkeypatch)
        slow.go.set()
        terms = LeaseTerms(new_holder(), ttl)
        session = ours.session("chat")
        branch = await repository_of(session).submit(BranchPlan(session, "new", lease=terms))
        session = theirs.session("chat")
        other = session.conversation(session.get_branch("new"), model=ScriptedModel(["Theirs."]))
        refused = Return() if ttl == 1 else await other.asay("Mine.")
        model = ScriptedModel(["Ours."])
        result = await ours.session("chat").conversation(branch, model=model).asay("Hello.")
        takes = [one for group in slow.groups for write in group for one in write.changes]
        leases = sum(isinstance(one, TakeLease) for one in takes)
        assert leases == (2 if ttl == 1 else 1)  # one that may have expired is taken again
        await other.asay("And now?")
        return refused, result

    refused, result = asyncio.run(made())
    assert [one.code for one in refused.notices] == ([] if ttl == 1 else ["busy"])
    assert result.stop_reason == "stable"
    assert [in_short(one) for one in theirs.session("chat").get_branch("new").messages] == [
        "user Hello.",
        "says Ours.",
        "user And now?",
        "says Theirs.",
    ]
