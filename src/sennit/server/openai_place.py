"""Where a conversation of OpenAI's clients is kept: its session, its branch, and what is new.

A client that names a session has it. One that names none has a session found by how the
conversation begins: its id follows from its owner and the first turn, so every process finds the
same one, and nobody finds another's. There the history it sends continues a branch, or leaves one
where it says something else, or begins another. So that a text which thousands of conversations
begin with does not make one endless session, a session takes a number of branches, and then the
next one begins; conversations are looked for in the last few.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from threading import Lock
from typing import Literal, TypeAlias
from uuid import UUID

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ExistsError, NotFoundError
from sennit.messages.codec import dumps
from sennit.messages.content import InstructionContent, SystemContent
from sennit.messages.message import Message
from sennit.server.openai_history import Match, Turn, best_match, trail_of
from sennit.server.openai_wire import Call, Sent, check_calls, system_message
from sennit.server.owners import Caller
from sennit.sessions.access import Grants
from sennit.sessions.branch import Branch
from sennit.turns.pending import pending

History: TypeAlias = Literal["whole", "new"]

MOST_BRANCHES = 32
"""How many branches a session takes that was found by how its conversations begin."""
_LOOKED_AT = 4
_MAIN = "main"


@dataclass(frozen=True, slots=True)
class Place:
    """Where to go on, and with what."""

    branch: Branch
    say: tuple[Message, ...]
    """What is new."""
    at: int | None
    """How many messages the branch holds there, without the system message; None: at its end."""

    kept: bool = True
    """Whether a store keeps it."""

    @property
    def session(self) -> Session:
        """The session it is in."""
        found = self.branch.session
        assert isinstance(found, Session)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The session that a client names, and how it means what it sends."""

    session: str
    branch: str | None = None
    history: History | None = None
    """Whether it sends the whole history or only what is new; None if that has to be told."""


async def place_of(caller: Caller, sent: Sent, named: Named | None, *, anew: bool = False) -> Place:
    """Where what a client sent goes on; the session and its branch are made if they are new.

    With `anew` the last turn is said again, also where a branch has it already. Raises Problem 400
    for calls without results, NotFoundError for a branch that is not there.
    """
    if named is None:
        check_calls(sent.messages)
        known = await _known(caller, sent, anew)
    else:
        known = None if anew else _known_by_name(caller.client, sent, named)
    if known is not None:
        return known
    if named is None:
        return await to_thread(_found, caller, sent, anew)
    return await to_thread(_named, caller, sent, named, anew)


async def _known(caller: Caller, sent: Sent, anew: bool) -> Place | None:
    """Where a conversation goes on that is new, or open here and goes on as one would expect.

    That is nearly every one, and nothing has to be read for it: if others have said something there
    meanwhile, the run is refused as it begins, and goes to a fork.
    """
    history = trail_of(sent.messages)
    opening, wanted = history[0].digest.hex(), _looked_for(history, anew)
    number = _last_shelves.get((caller.client, opening))
    session = caller.client.opened(shelf_id(caller.client, opening, number))
    if session is None:
        return None if number else await _first(caller, sent, opening, number)
    match = best_match(wanted, session.branches)
    if match is None or match.turns < len(history) - 1:
        return None
    if len(history) == 1 and full(session) and not match.at_the_end:
        return await _first(caller, sent, opening, number + 1)
    place = Place(match.branch, sent.messages[match.said :], match.at)
    if match.at_the_end:
        return place if _behaves(match.branch, sent.system or "") else None
    system = _same_system(match.branch, sent.system)
    return None if full(session) else await aside(place, system)


async def _first(caller: Caller, sent: Sent, opening: str, number: int) -> Place | None:
    """The first conversation in a new session for those that begin so; None if it is not new."""
    system = None if sent.system is None else system_message(sent.system)
    uid = shelf_id(caller.client, opening, number)
    branch = await caller.client.abegin(uid, system=system, resources="*", metadata=SOURCE)
    if branch is None:
        return None
    _last_shelves.put((caller.client, opening), number)
    place = Place(branch, sent.messages, 0)
    caller.open.hold(place.session)
    return place


def _known_by_name(client: Client, sent: Sent, named: Named) -> Place | None:
    """The same where a session is named, to which something new is said."""
    session = client.opened(named.session)
    branch = None if session is None else session.get_branch(named.branch or _MAIN, None)
    says_more = named.history == "whole" or sent.speaks or sent.answers
    if branch is None or says_more:
        return None
    if sent.system is not None and not _behaves(branch, sent.system):
        return None
    return Place(branch, sent.messages, None)


async def said_before(
    caller: Caller, sent: Sent, named: Named | None, uid: UUID
) -> tuple[Branch, int] | None:
    """The branch that has a message, and at which index; None if no session meant here has it."""
    return await to_thread(_said_before, caller, sent, named, uid)


def _said_before(
    caller: Caller, sent: Sent, named: Named | None, uid: UUID
) -> tuple[Branch, int] | None:
    if named is None:
        opening = trail_of(sent.messages)[0].digest.hex()
        sessions = Shelf(caller.client, caller.open.hold, opening).sessions()
    else:
        sessions = iter((caller.open.hold(caller.client.session(named.session)),))
    for session in sessions:
        if uid in session.messages:
            return next(((one, one.index(uid)) for one in session.branches if uid in one), None)
    return None


def _named(caller: Caller, sent: Sent, named: Named, anew: bool) -> Place:
    session = caller.open.hold(caller.client.session(named.session))
    branch = None if named.branch is None else session.get_branch(named.branch)
    if named.history == "new" or (named.history is None and _is_new(sent, session)):
        return _said_on(_main(session) if branch is None else branch, sent)
    check_calls(sent.messages)
    branches = session.branches if branch is None else (branch,)
    match = best_match(_looked_for(trail_of(sent.messages), anew), branches)
    return _begun(session, sent) if match is None else _matched(match, sent)


def _main(session: Session) -> Branch:
    """The branch that people mean who name none."""
    found = session.get_branch(_MAIN, None)
    return new_branch(session, None) if found is None else found


def _is_new(sent: Sent, session: Session) -> bool:
    """Whether a client that names a session sends only what is new: it does not quote anyone."""
    return not sent.speaks and len(session.branches) > 0


def _said_on(branch: Branch, sent: Sent) -> Place:
    """What is new, at the end of a branch, whatever has been said there."""
    if sent.answers:
        check_calls(sent.messages, [Call.of(one).id for one in pending(branch)])
    if sent.system is not None:
        _behave(branch, sent.system, sent.lasting)
    return Place(branch, sent.messages, None)


def _looked_for(history: list[Turn], anew: bool) -> list[Turn]:
    return history[:-1] if anew else history


def _found(caller: Caller, sent: Sent, anew: bool) -> Place:
    """A place in the sessions that conversations with this beginning have."""
    history = trail_of(sent.messages)
    shelf = Shelf(caller.client, caller.open.hold, history[0].digest.hex())
    wanted, best = _looked_for(history, anew), None
    for session in shelf.sessions():
        match = best_match(wanted, session.branches)
        if match is not None and (best is None or match.turns > best.turns):
            best = match
        if best is not None and best.turns >= len(history) - 1:
            break
    if best is not None and (best.at_the_end or not full(best.branch.session)):
        return _matched(best, sent)
    return _begun(shelf.room(), sent)


def _matched(match: Match, sent: Sent) -> Place:
    return continued(Place(match.branch, sent.messages[match.said :], match.at), sent.system)


def continued(place: Place, system: str | None) -> Place:
    """A place with this system message: the end of its branch, or else a fork there."""
    if place.at == place.branch.tail.total:
        _behave(place.branch, system, system)
        return place
    return forked(place, _same_system(place.branch, system))


def _begun(session: Session, sent: Sent) -> Place:
    """A branch of its own for a conversation."""
    system = None if sent.system is None else system_message(sent.system)
    branch = new_branch(session, system)
    return Place(branch, sent.messages, 0)


def new_branch(session: Session, system: Message | None) -> Branch:
    """Another branch; the first one is the main one."""
    name = None if len(session.branches) else _MAIN
    try:
        return session.create_branch(name, system=system, resources="*")
    except ExistsError:  # someone else was faster
        return session.create_branch(system=system, resources="*")


def forked(place: Place, system: Message | UUID | None) -> Place:
    """The same on a fork, which leaves the branch where the place is."""
    branch = place.branch
    at = branch.tail.total if place.at is None else place.at
    grants = Grants(branch.resources, branch.capabilities)
    fork = branch.session.fork_history(branch, at, name=None, grants=grants, system=system)
    return replace(place, branch=fork, at=at)


async def aside(place: Place, system: Message | UUID | None) -> Place:
    """The same for async callers."""
    at = place.branch.tail.total if place.at is None else place.at
    fork = await place.branch.session.afork_history(place.branch, at, system=system)
    return replace(place, branch=fork, at=at)


def _behave(branch: Branch, said: str | None, lasting: str | None) -> None:
    """Have the branch's system message say this, of which so much is lasting, or have none."""
    if not _behaves(branch, said or ""):
        notes = None if lasting == said else {"lasting": lasting or ""}
        system = system_message(said, notes) if said else None
        branch.session.set_branch_system(branch, system)


def _behaves(branch: Branch, said: str) -> bool:
    return _system_text(branch) == said


def _same_system(branch: Branch, said: str | None) -> Message | UUID | None:
    """The system message of a branch if it says this, else a new one."""
    if said is None:
        return None
    old = branch.system
    return old.id if old is not None and _system_text(branch) == said else system_message(said)


def _system_text(branch: Branch) -> str:
    content = None if branch.system is None else branch.system.content
    return content.system_message or "" if isinstance(content, SystemContent) else ""


def full(session: object) -> bool:
    """Whether a session has all the branches it takes."""
    assert isinstance(session, Session)
    return len(session.branches) >= MOST_BRANCHES


def derived_id(client: Client, *parts: str) -> UUID:
    """An id that follows from an owner and some words; it sorts before those made from the time."""
    digest = blake2b(dumps([client.tenant, client.user, *parts]), digest_size=16).digest()
    number = int.from_bytes(digest, "big") & (1 << 80) - 1
    number = number & ~(0xF << 76) | (8 << 76)
    return UUID(int=number & ~(0b11 << 62) | (0b10 << 62))


def shelf_id(client: Client, opening: str, number: int = 0) -> UUID:
    """The id of a session for conversations that begin so; the first has the number 0."""
    return derived_id(client, "conversations", opening, str(number))


class Shelf:
    """The sessions of all conversations of an owner that begin alike: full ones, and the last."""

    def __init__(self, client: Client, hold: Callable[[Session], Session], opening: str) -> None:
        self._client, self._hold, self._opening = client, hold, opening
        self._last: int | None = None

    def sessions(self) -> Iterator[Session]:
        """The last few there are, the newest first."""
        last = self._end()
        for number in range(last, max(-1, last - _LOOKED_AT), -1):
            if (found := self._at(number)) is not None:
                yield found

    def room(self) -> Session:
        """The session that takes another branch."""
        _last_shelves.put((self._client, self._opening), self._end())
        return self._hold(self._client.session(self._id(self._end()), metadata=SOURCE))

    def _end(self) -> int:
        """The number of the first session that is not full, or not there."""
        if self._last is None:
            self._last = _first_not(self._is_full)
        return self._last

    def _is_full(self, number: int) -> bool:
        found = self._at(number)
        return found is not None and full(found)

    def _at(self, number: int) -> Session | None:
        try:
            return self._hold(self._client.session(self._id(number), create=False))
        except NotFoundError:
            return None

    def _id(self, number: int) -> UUID:
        return shelf_id(self._client, self._opening, number)


SOURCE = {"source": "openai"}
"""The metadata of a session that was made because a conversation began."""


class _LastNumbers:
    """The number of the session that takes new branches, as far as it was found out lately.

    A wrong one does no harm: it is only where to look first.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most, self._lock = most, Lock()
        self._numbers: dict[tuple[int, str], int] = {}

    def get(self, of: tuple[Client, str]) -> int:
        """The last number found; 0 if none was."""
        return self._numbers.get((id(of[0]), of[1]), 0)

    def put(self, of: tuple[Client, str], number: int) -> None:
        """Remember a number, unless it is the first, which most have."""
        with self._lock:
            if len(self._numbers) >= self._most:
                self._numbers.clear()
            if number:
                self._numbers[id(of[0]), of[1]] = number


_last_shelves = _LastNumbers()


def _first_not(holds: Callable[[int], bool]) -> int:
    """The first number for which something does not hold that holds for all before it."""
    if not holds(0):
        return 0
    low, high = 0, 1
    while holds(high):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def begin_apart(client: Client, sent: Sent) -> Place:
    """A place in a session of its own that no store keeps."""
    session = Session(services=client.services, agent=client.agent)
    return replace(_begun(session, sent), kept=False)


def asked_in_form(place: Place, form: object) -> Place:
    """The same with the form of the answer asked for in words, where something new is asked."""
    said = list(place.say)
    for at in range(len(said) - 1, -1, -1):
        content = said[at].content
        if isinstance(content, InstructionContent):
            said[at] = _with_content(said[at], content.with_updates(response_model=form))
            return replace(place, say=tuple(said))
    return place


def _with_content(message: Message, content: InstructionContent) -> Message:
    return Message(content, sender=message.sender, id=message.id, metadata=message.metadata)


def anchored(place: Place, uid: UUID, metadata: Mapping[str, object]) -> Place:
    """The same with an id and notes for the first thing that is new, to find it again by."""
    first, *rest = place.say
    noted = {**first.metadata, **metadata, "said": len(place.say)}
    named = Message(first.content, sender=first.sender, id=uid, metadata=noted)
    return replace(place, say=(named, *rest))
