"""The session and branch that a request continues, and its new messages.

A client that names a session has it. One that names none has a session found by how the
conversation begins (`openai_shelf`). There the history it sends continues a branch, or leaves one
where it says something else, or begins another; two histories are the same if they say the same
(`openai_history`).

A history that this server has seen is found at once, whoever else began alike (`openai_known`). One
it has not seen, or has forgotten, is looked for in the last few sessions of its beginning. If it
is not found there either it begins anew, with all that was sent: nothing is lost, and no client
ever sees more or less than it sent, but a conversation may then stand in two places.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ConflictError, ExistsError, NotFoundError
from sennit.messages.content import InstructionContent, SystemContent
from sennit.messages.message import Message
from sennit.messages.unset import MaybeUnset, Unset
from sennit.server.http.callers import Caller
from sennit.server.openai.branch_cache import BranchCache, RequestHistory, Spot
from sennit.server.openai.chat_schemas import bad
from sennit.server.openai.derived_sessions import SOURCE, DerivedSessions, full
from sennit.server.openai.history_match import (
    HistoryMatch,
    HistoryTurn,
    best_match,
    message_at,
    trail_of,
)
from sennit.server.openai.translate import (
    ClientMessages,
    ClientToolCall,
    check_calls,
    system_message,
)
from sennit.sessions.branch import Branch
from sennit.turns.branch_lease import first_lease
from sennit.turns.tools.pending_calls import pending

History: TypeAlias = Literal["whole", "new"]

CLIENT_NOTES = "client"
"""Where the metadata of a session hold what a client noted of a conversation that it made."""

_MAIN = "main"
_FEW = 64  # messages that are read on the event loop
_TRIES = 10  # to fork a branch that others change meanwhile


class BranchLocation(msgspec.Struct, frozen=True):
    """The branch to continue, and the new messages."""

    branch: Branch
    say: tuple[Message, ...]
    """What is new."""
    at: int | None
    """How many messages the branch holds there, without the system message; None: at its end."""

    last: UUID | None = None
    """The last of those messages: another one shows that they were changed. None: any will do."""
    system: MaybeUnset[Message | None] = Unset
    """The system message to go on with, None for none; Unset for the one of the branch."""
    kept: bool = True
    """Whether a store keeps it."""
    story: RequestHistory | None = None
    """What was told of a conversation that was found by that."""
    again: Callable[[], Awaitable[BranchLocation]] | None = None
    """Looks for it once more, in the store, if it was known here and is not there any more."""
    resumes: bool = False
    """Whether the last run of the branch is gone on with."""

    @property
    def session(self) -> Session:
        """The session it is in."""
        return _session(self.branch)


def _session(branch: Branch) -> Session:
    session = branch.session
    assert isinstance(session, Session)
    return session


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSession:
    """The session that a client names, and how it means what it sends."""

    session: str
    branch: str | None = None
    history: History | None = None
    """Whether it sends the whole history or only what is new; None if that has to be told."""


async def place_of(
    caller: Caller, sent: ClientMessages, named: NamedSession | None, *, always_append: bool = False
) -> BranchLocation:
    """Return where a request continues; a new session and branch are created if needed.

    With `anew` the last turn is said again, also where a branch has it already. Raises HTTPError
    400 for calls without results, NotFoundError for a missing branch.
    """
    if named is not None:
        cached = None if always_append else _known_by_name(caller, sent, named)
        if cached is None:
            return await to_thread(_named, caller, sent, named, always_append)
        return replace(cached, again=partial(_again, caller, sent, named, always_append, cached))
    history = await _story(caller, sent)
    if not history.turns:
        raise bad("messages", "There must be at least one message that says something.")
    target = history.turns[:-1] if always_append else history.turns
    location = await _in_conversation(caller, sent, history.turns, target)
    location, shared = (
        (location, len(target))
        if location is not None
        else await _found(caller, sent, history.turns, target)
    )
    history.goes_to(location.branch, history.turns[shared:])
    relocate = partial(_again, caller, sent, named, always_append, location)
    return replace(location, story=history, again=relocate)


async def _story(caller: Caller, sent: ClientMessages) -> RequestHistory:
    """The conversation as it was sent, checked; a long one is read in a thread."""

    def read() -> RequestHistory:
        check_calls(sent.messages)
        return RequestHistory(caller.client, caller.known, sent.messages)

    return read() if len(sent.messages) <= _FEW else await to_thread(read)


async def _again(
    caller: Caller,
    sent: ClientMessages,
    named: NamedSession | None,
    always_append: bool,
    stale: BranchLocation,
) -> BranchLocation:
    """The place for the same where another one is gone, or is not what it was."""
    try:
        await caller.session(str(stale.session.id))
    except NotFoundError:
        caller.lose(stale.session.id)
    return replace(await place_of(caller, sent, named, always_append=always_append), again=None)


async def _found(
    caller: Caller,
    sent: ClientMessages,
    turns: Sequence[HistoryTurn],
    target: Sequence[HistoryTurn],
) -> tuple[BranchLocation, int]:
    """A place for a conversation of so many turns, and how many of those wanted stand there."""
    key, derived = caller.known.spot(caller.client, target), DerivedSessions(caller, turns[0].digest)
    match = None if key is None else _match_here(caller, key, target)
    if match is not None and match.turns >= len(turns) - 1:
        with suppress(ConflictError, NotFoundError):  # changed elsewhere: the store tells how
            return await _at_match(caller, sent, derived, match)
    elif len(turns) == 1 and (location := await _begin(caller, sent, derived)) is not None:
        return location, 0
    sessions = _candidates(caller, key, derived)
    match = await to_thread(_match_in, sessions, target, len(turns) - 1)
    return await _at_match(caller, sent, derived, match)


async def _at_match(
    caller: Caller, sent: ClientMessages, derived: DerivedSessions, match: HistoryMatch | None
) -> tuple[BranchLocation, int]:
    """A place where a branch goes along, or in the session that takes another one."""
    if match is None or (full(_session(match.branch)) and not match.at_the_end):
        return await _begin(caller, sent, derived) or await to_thread(_begun_in, derived, sent), 0
    location = BranchLocation(match.branch, sent.messages[match.said :], match.at, last=match.last)
    return await continued(location, sent.system, caller.known), match.turns


async def _in_conversation(
    caller: Caller,
    sent: ClientMessages,
    turns: Sequence[HistoryTurn],
    target: Sequence[HistoryTurn],
) -> BranchLocation | None:
    """A fork of the conversation that was given all these turns as items, if there is one.

    Where the last response of that conversation stands is known by the turns before; then it is
    None, and the response goes on there.
    """
    key = caller.known.spot(caller.client, turns[-1:])
    if key is None or caller.known.spot(caller.client, target[-1:]) not in (None, key):
        return None
    open_branch = _open_branch(caller, key)
    if open_branch is not None and not is_main_of_conversation(open_branch):
        return None
    try:
        main = (await caller.session(str(key[0]))).get_branch(key[1], None)
    except NotFoundError:
        return None
    if main is None or not is_main_of_conversation(main):
        return None
    match = best_match(target, (main,))
    if (0 if match is None else match.turns) < len(target):
        return None
    at, matched = (0, 0) if match is None else (match.at, match.said)
    location = BranchLocation(main, sent.messages[matched:], at, system=_system(sent.system))
    return await aside(location, _same_system(main, sent.system))


def is_main_of_conversation(branch: Branch) -> bool:
    """Return whether a branch holds the items of a conversation, which its client alone adds to."""
    return branch.name == _MAIN and CLIENT_NOTES in branch.session.metadata


def _match_here(caller: Caller, key: Spot, target: Sequence[HistoryTurn]) -> HistoryMatch | None:
    """Match a history against a branch of an open session, without asking the store.

    If others have said or removed something there meanwhile, the run is refused as it begins, and
    so is a fork: then the store is asked.
    """
    branch = _open_branch(caller, key)
    if branch is None:
        return None
    caller.open.hold(_session(branch))
    return best_match(target, (branch,))


def _open_branch(caller: Caller, key: Spot) -> Branch | None:
    session = caller.client.opened(key[0])
    return None if session is None else session.get_branch(key[1], None)


def _match_in(
    sessions: Iterable[Session], target: Sequence[HistoryTurn], enough: int
) -> HistoryMatch | None:
    """The branch that goes along furthest; once so many turns are `enough`, no other is read."""
    best: HistoryMatch | None = None
    for session in sessions:
        match = best_match(target, session.branches)
        if match is not None and (best is None or match.turns > best.turns):
            best = match
        if best is not None and best.turns >= enough:
            break
    return best


def _candidates(caller: Caller, key: Spot | None, derived: DerivedSessions) -> Iterator[Session]:
    """The sessions in which a conversation may stand, read from the store one by one."""
    if key is not None:
        with suppress(NotFoundError):
            yield caller.open.hold(caller.client.session(key[0], create=False))
    yield from derived.sessions()


async def _begin(
    caller: Caller, sent: ClientMessages, derived: DerivedSessions
) -> BranchLocation | None:
    """A branch of its own for a conversation; None if the store has to be looked at for that."""
    system = _system(sent.system)
    async with caller.known.beginning(derived.first):
        number = derived.last
        session = caller.client.opened(derived.id(number))
        if session is None or full(session):
            number += session is not None
            branch = await caller.client.abegin(
                derived.id(number), system=system, metadata=SOURCE, lease=first_lease()
            )
            if branch is None:
                return None
            caller.known.note_shelf(derived.first, number)
            caller.open.hold(_session(branch))
            return BranchLocation(branch, sent.messages, 0, system=system)
    try:
        branch = await caller.open.hold(session).acreate_branch(system=system, lease=first_lease())
    except NotFoundError:  # deleted elsewhere
        caller.lose(session.id)
        return None
    return BranchLocation(branch, sent.messages, 0, system=system)


def _begun_in(derived: DerivedSessions, sent: ClientMessages) -> BranchLocation:
    return _begun(derived.room(), sent)


def _known_by_name(
    caller: Caller, sent: ClientMessages, named: NamedSession
) -> BranchLocation | None:
    """Return the location in a named session, if that is open."""
    branch = caller.seen_branch(named.session, named.branch or _MAIN)
    has_history = named.history == "whole" or sent.speaks or sent.answers
    if branch is None or has_history:
        return None
    if sent.system is not None and not _behaves(branch, sent.system):
        return None
    return BranchLocation(branch, sent.messages, None, system=_new_system(sent))


def asked_in(
    caller: Caller, sent: ClientMessages, named: NamedSession | None, uid: UUID
) -> Iterator[Session]:
    """The sessions in which a request may have been taken in that is sent again."""
    if (record := caller.known.once(caller.client, uid)) is not None:
        with suppress(NotFoundError):
            yield caller.open.hold(caller.client.session(record[0], create=False))
    if named is not None:
        yield caller.open.hold(caller.client.session(named.session))
    elif turns := trail_of(sent.messages):
        yield from DerivedSessions(caller, turns[0].digest).sessions()


def _named(caller: Caller, sent: ClientMessages, named: NamedSession, always_append: bool) -> BranchLocation:
    session = caller.open.hold(caller.client.session(named.session))
    branch = None if named.branch is None else session.get_branch(named.branch)
    if named.history == "new" or (named.history is None and _is_new(sent, session)):
        return _said_on(_main(session) if branch is None else branch, sent)
    check_calls(sent.messages)
    branches = session.branches if branch is None else (branch,)
    turns = trail_of(sent.messages)
    match = best_match(turns[:-1] if always_append else turns, branches)
    return _begun(session, sent) if match is None else _matched(match, sent)


def _main(session: Session) -> Branch:
    """The branch that people mean who name none."""
    branch = session.get_branch(_MAIN, None)
    return new_branch(session, None) if branch is None else branch


def _is_new(sent: ClientMessages, session: Session) -> bool:
    """Return whether a client that names a session sends only what is new: it does not quote
    anyone.
    """
    return not sent.speaks and len(session.branches) > 0


def _said_on(branch: Branch, sent: ClientMessages) -> BranchLocation:
    """Return the location at the end of a branch, whatever its history."""
    if sent.answers:
        check_calls(sent.messages, [ClientToolCall.of(call).id for call in pending(branch)])
    system = _new_system(sent)
    if system is not Unset and not sent.messages and not _behaves(branch, sent.system or ""):
        branch.session.set_branch_system(branch, system)  # which may be all there is to answer
    return BranchLocation(branch, sent.messages, None, system=system)


def _matched(match: HistoryMatch, sent: ClientMessages) -> BranchLocation:
    new, system = sent.messages[match.said :], _system(sent.system)
    location = BranchLocation(match.branch, new, match.at, system=system)
    if match.at_the_end:
        return location
    return forked(location, _same_system(location.branch, sent.system))


async def continued(
    location: BranchLocation, system: str | None, cache: BranchCache
) -> BranchLocation:
    """A place with this system message: the end of its branch, or else a fork there."""
    branch, location = location.branch, replace(location, system=_system(system))
    busy = cache.is_taken(branch) or is_main_of_conversation(branch)
    if location.at != branch.tail.total or busy:
        return await aside(location, _same_system(branch, system))
    return location


def _begun(session: Session, sent: ClientMessages) -> BranchLocation:
    """A branch of its own for a conversation."""
    system = _system(sent.system)
    branch = new_branch(session, system)
    return BranchLocation(branch, sent.messages, 0, system=system)


def new_branch(session: Session, system: Message | None) -> Branch:
    """Another branch; the first one is the main one."""
    name = None if len(session.branches) else _MAIN
    try:
        return session.create_branch(name, system=system)
    except ExistsError:  # someone else was faster
        return session.create_branch(system=system)


def forked(location: BranchLocation, system: Message | UUID | None) -> BranchLocation:
    """The same on a fork, which leaves the branch where the place is."""
    branch = location.branch
    at = branch.tail.total if location.at is None else location.at
    grants = branch.grants
    fork = branch.session.fork_history(branch, at, name=None, grants=grants, system=system)
    return replace(location, branch=fork, at=at)


async def aside(location: BranchLocation, system: Message | UUID | None) -> BranchLocation:
    """The same for async callers; raises ConflictError if others have changed what it goes on.

    NotFoundError if they have removed the branch.
    """
    branch = location.branch
    if location.at and location.last not in (None, message_at(branch, location.at)):
        raise ConflictError("Another client changed the history meanwhile; send the request again.")
    at = branch.tail.total if location.at is None else location.at
    last = message_at(branch, at)
    for retries_left in range(_TRIES, -1, -1):
        try:
            fork = await branch.session.afork_history(
                branch, at, name=None, grants=branch.grants, system=system, lease=first_lease()
            )
        except ConflictError:  # it may have got no more than another system message
            await to_thread(branch.session.refresh)
            if not retries_left or message_at(branch, at) != last:
                raise
        else:
            return replace(location, branch=fork, at=at)
    raise AssertionError("the last try returns or raises")


def _system(text: str | None) -> Message | None:
    """A system message that says this; None for nothing."""
    return system_message(text) if text else None


def _new_system(sent: ClientMessages) -> MaybeUnset[Message | None]:
    """The system message that was sent, of which only a part may be lasting; Unset if none was."""
    if sent.system is None:
        return Unset
    notes = None if sent.lasting == sent.system else {"lasting": sent.lasting or ""}
    return system_message(sent.system, notes) if sent.system else None


def _behaves(branch: Branch, text: str) -> bool:
    return _system_text(branch) == text


def _same_system(branch: Branch, text: str | None) -> Message | UUID | None:
    """The system message of a branch if it says this, else a new one."""
    if text is None:
        return None
    old = branch.system
    return old.id if old is not None and _system_text(branch) == text else system_message(text)


def _system_text(branch: Branch) -> str:
    content = None if branch.system is None else branch.system.content
    return content.system_message or "" if isinstance(content, SystemContent) else ""


def begin_apart(client: Client, sent: ClientMessages) -> BranchLocation:
    """A place in a session of its own that no store keeps."""
    session = Session(services=client.services, agent=client.agent)
    return replace(_begun(session, sent), kept=False)


def asked_in_form(location: BranchLocation, schema: object) -> BranchLocation:
    """The same with the form of the answer asked for in words, where something new is asked."""
    messages = list(location.say)
    for at in range(len(messages) - 1, -1, -1):
        content = messages[at].content
        if isinstance(content, InstructionContent):
            messages[at] = _with_content(messages[at], content.with_updates(response_model=schema))
            return replace(location, say=tuple(messages))
    return location


def _with_content(message: Message, content: InstructionContent) -> Message:
    return Message(content, sender=message.sender, id=message.id, metadata=message.metadata)


def anchored(location: BranchLocation, uid: UUID, metadata: Mapping[str, object]) -> BranchLocation:
    """The same with an id and notes for the first thing that is new, to find it again by."""
    first, *rest = location.say
    notes = {**first.metadata, **metadata, "said": [message.id.hex for message in rest]}
    identified = Message(first.content, sender=first.sender, id=uid, metadata=notes)
    relocate = None if location.again is None else partial(_anchored_again, location.again, uid, metadata)
    return replace(location, say=(identified, *rest), again=relocate)


async def _anchored_again(
    relocate: Callable[[], Awaitable[BranchLocation]], uid: UUID, metadata: Mapping[str, object]
) -> BranchLocation:
    return anchored(await relocate(), uid, metadata)
