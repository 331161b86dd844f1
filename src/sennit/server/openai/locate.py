"""The session and branch that a request continues, and its new messages.

A client may name its session. Otherwise the session is derived from the first turn of the
conversation (`derived_sessions`), and the history it sends continues a branch there, forks one
where the two differ, or starts a new branch. Histories are compared by digest (`history`).

A history that this process has seen is looked up in the BranchCache; any other is searched for in
the last few derived sessions. If neither has it, the whole history is stored on a new branch: a
client never sees more or less than it sent, but a conversation may then be stored twice.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ConflictError, ExistsError, NotFoundError
from sennit.messages.blob_reference import named_blobs
from sennit.messages.content import InstructionContent, SystemContent
from sennit.messages.message import Message
from sennit.messages.unset import MaybeUnset, Unset
from sennit.server.http.caches import BranchCache, BranchKey, HistoryTurn
from sennit.server.http.callers import Caller
from sennit.server.http.errors import bad_param
from sennit.server.openai.derived_sessions import SOURCE, DerivedSessions, is_full
from sennit.server.openai.history import (
    HistoryMatch,
    TurnHasher,
    best_match,
    message_at,
    turns_of,
)
from sennit.server.openai.translate import (
    ClientMessages,
    ClientToolCall,
    check_calls,
    system_message,
)
from sennit.sessions.branch import Branch
from sennit.sessions.client import begin_session, blobs_of, cached_session
from sennit.sessions.plan import BranchPlan, fork_history
from sennit.sessions.repository import repository_of
from sennit.sessions.segments import tail_of
from sennit.turns.branch_lease import first_lease
from sennit.turns.tools.pending_calls import pending_calls

History: TypeAlias = Literal["whole", "new"]

CLIENT_METADATA = "client"
"""The key in a session's metadata that holds the metadata of its OpenAI conversation."""

_MAIN = "main"
_MAX_INLINE_MESSAGES = 64  # hashed on the event loop
_FORK_RETRIES = 10  # for a branch that others change meanwhile


class BranchLocation(msgspec.Struct, frozen=True):
    """The branch to continue, and the new messages."""

    branch: Branch
    new_messages: tuple[Message, ...]
    """The messages to append."""
    at: int | None
    """Where to append: the number of messages before, without the system message; None: the end."""

    last: UUID | None = None
    """The expected id of the message before; another id means a conflict. None: not checked."""
    system: MaybeUnset[Message | None] = Unset
    """The system message of the run, None for none; Unset for that of the branch."""
    is_stored: bool = True
    """Whether the session is in the store."""
    locator: Locator | None = None
    """The Locator that found it; None if the request named a response."""
    may_be_stale: bool = False
    """Whether to locate the request again, in the store, if the branch is gone or has changed."""
    resumes: bool = False
    """Whether to resume the last run of the branch."""

    @property
    def session(self) -> Session:
        """The session of the branch."""
        return _session(self.branch)


def _session(branch: Branch) -> Session:
    session = branch.session
    assert isinstance(session, Session)
    return session


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedSession:
    """The session that a client names, and the kind of history it sends."""

    session: str
    branch: str | None = None
    history: History | None = None
    """Whether it sends the whole history or only new messages; None to detect it."""


class Locator:
    """Finds where a request continues; creates the session and branch if needed."""

    def __init__(
        self,
        caller: Caller,
        cache: BranchCache,
        sent: ClientMessages,
        named: NamedSession | None,
        *,
        always_append: bool = False,
        uid: UUID | None = None,
        notes: Mapping[str, object] | None = None,
    ) -> None:
        """With `always_append` the last turn is appended even if a branch already ends with it.

        `uid` is the id of the first new message, `notes` its metadata.
        """
        self._caller, self._cache, self._sent, self._named = caller, cache, sent, named
        self._always_append, self._uid, self._notes = always_append, uid, notes
        self._hasher = TurnHasher()
        self._turns: list[HistoryTurn] = []

    async def locate(self) -> BranchLocation:
        """Return where the request continues.

        Raises HTTPError 400 for calls without results, NotFoundError for a missing branch or blob.
        """
        if named_blobs(self._sent.messages):  # before a session is created
            await to_thread(blobs_of(self._caller.client).check, self._sent.messages)
        if self._named is None:
            location = await self._locate_history()
        else:
            location = await self._locate_named(self._named)
        location = replace(location, locator=self)
        if not self._notes or not location.new_messages:
            return location
        return with_first_id(location, self._uid or location.new_messages[0].id, self._notes)

    async def move(self, location: BranchLocation) -> BranchLocation:
        """Return another location, because the branch is busy, has moved on or is gone.

        A location from the cache is located once more, in the store; any other is forked.
        """
        if location.may_be_stale:
            try:
                await self._caller.session(str(location.session.id))
            except NotFoundError:
                self._caller.evict(location.session.id)
            return replace(await self.locate(), may_be_stale=False)
        fork = await fork_location(location)
        self._cache.add(self._caller.client, self._turns[-1:], fork.branch)
        self._cache.claims[fork.branch.id] = self
        return fork

    def record(self, branch: Branch, answer: Sequence[Message]) -> None:
        """Release the branch, and cache the answer, by which the next request finds it."""
        if self._cache.claims.get(branch.id) is self:
            del self._cache.claims[branch.id]
        if answer and self._named is None:
            self._hasher.feed(answer)
            self._cache.add(self._caller.client, self._hasher.turns[-1:], branch)

    def sessions_with(self, uid: UUID) -> Iterator[Session]:
        """Yield the sessions that may hold an earlier attempt of an idempotent request."""
        caller = self._caller
        if (record := self._cache.find_request(caller.client, uid)) is not None:
            with suppress(NotFoundError):
                yield caller.hold(caller.client.session(record[0], create=False))
        if self._named is not None:
            yield caller.hold(caller.client.session(self._named.session))
        elif turns := turns_of(self._sent.messages):
            yield from DerivedSessions(caller, self._cache, turns[0].digest).sessions()

    async def _locate_history(self) -> BranchLocation:
        """Continue, fork or begin a branch with the history that was sent."""
        if not self._turns:
            few = len(self._sent.messages) <= _MAX_INLINE_MESSAGES
            self._turns = self._read_turns() if few else await to_thread(self._read_turns)
        turns = self._turns
        target = turns[:-1] if self._always_append else turns
        location, shared = await self._fork_conversation(target), len(target)
        if location is None:
            location, shared = await self._find_or_begin(target)
        self._cache.add(self._caller.client, turns[shared:], location.branch)
        self._cache.claims[location.branch.id] = self
        return replace(location, may_be_stale=True)

    def _read_turns(self) -> list[HistoryTurn]:
        check_calls(self._sent.messages)
        self._hasher.feed(self._sent.messages)
        if not (turns := self._hasher.turns):
            raise bad_param(
                "messages", "'messages' must contain at least one message with content."
            )
        return turns

    async def _find_or_begin(self, target: Sequence[HistoryTurn]) -> tuple[BranchLocation, int]:
        """Return where a history continues, and how many of the target turns its branch has."""
        enough = len(self._turns) - 1
        key = self._cache.find(self._caller.client, target)
        match = None if key is None else self._match_open_branch(key, target)
        if match is not None and match.turns >= enough:
            with suppress(ConflictError, NotFoundError):  # changed by another process
                return await self._locate_at(match)
        elif not enough and (location := await self._begin_branch()) is not None:
            return location, 0
        match = await to_thread(_best_in_sessions, self._candidates(key), target, enough)
        return await self._locate_at(match)

    async def _locate_at(self, match: HistoryMatch | None) -> tuple[BranchLocation, int]:
        """Return the location at a match, or on a new branch, and the number of shared turns."""
        if match is None or (not match.is_at_end and is_full(_session(match.branch))):
            location = await self._begin_branch()
            if location is None:
                location = await to_thread(lambda: _begin_in(self._derived.with_room(), self._sent))
            return location, 0
        new = self._sent.messages[match.message_count :]
        location = BranchLocation(match.branch, new, match.at, last=match.last)
        return await continue_or_fork(location, self._sent.system, self._cache), match.turns

    async def _fork_conversation(self, target: Sequence[HistoryTurn]) -> BranchLocation | None:
        """Fork the conversation whose items are all these turns; None if there is none.

        Also None if the turns before the last are cached for another branch, which then holds the
        last response of that conversation and is continued instead.
        """
        client, sent = self._caller.client, self._sent
        key = self._cache.find(client, self._turns[-1:])
        if key is None or self._cache.find(client, target[-1:]) not in (None, key):
            return None
        open_branch = self._open_branch(key)
        if open_branch is not None and not is_main_of_conversation(open_branch):
            return None
        try:
            main = (await self._caller.session(str(key[0]))).get_branch(key[1], None)
        except NotFoundError:
            return None
        if main is None or not is_main_of_conversation(main):
            return None
        match = best_match(target, (main,))
        if (0 if match is None else match.turns) < len(target):
            return None
        at, matched = (0, 0) if match is None else (match.at, match.message_count)
        system = _optional_system(sent.system)
        location = BranchLocation(main, sent.messages[matched:], at, system=system)
        return await fork_at(location, _reuse_system(main, sent.system))

    def _match_open_branch(
        self, key: BranchKey, target: Sequence[HistoryTurn]
    ) -> HistoryMatch | None:
        """Match a history against a branch of an open session, without reading the store.

        If another process has changed the branch, starting the run or the fork raises a conflict,
        and the store is read then.
        """
        branch = self._open_branch(key)
        if branch is None:
            return None
        self._caller.hold(_session(branch))
        return best_match(target, (branch,))

    def _open_branch(self, key: BranchKey) -> Branch | None:
        session = cached_session(self._caller.client, key[0])
        return None if session is None else session.get_branch(key[1], None)

    @property
    def _derived(self) -> DerivedSessions:
        return DerivedSessions(self._caller, self._cache, self._turns[0].digest)

    def _candidates(self, key: BranchKey | None) -> Iterator[Session]:
        """Yield the sessions that may hold a conversation, read from the store one by one."""
        if key is not None:
            with suppress(NotFoundError):
                yield self._caller.hold(self._caller.client.session(key[0], create=False))
        yield from self._derived.sessions()

    async def _begin_branch(self) -> BranchLocation | None:
        """Create a branch for a new conversation; None if the store must be read first."""
        caller, cache, sent, derived = self._caller, self._cache, self._sent, self._derived
        system = _optional_system(sent.system)
        async with cache.lock(derived.first):
            number = cache.last_derived(caller.client, derived.first)
            session = cached_session(caller.client, derived.id(number))
            if session is None or is_full(session):
                number += session is not None
                branch = await begin_session(
                    caller.client,
                    derived.id(number),
                    system=system,
                    metadata=SOURCE,
                    lease=first_lease(),
                )
                if branch is None:
                    return None
                cache.set_last_derived(caller.client, derived.first, number)
                caller.hold(_session(branch))
                return BranchLocation(branch, sent.messages, 0, system=system)
        try:
            session = caller.hold(session)
            plan = BranchPlan(session, None, system=system, lease=first_lease())
            branch = await repository_of(session).submit(plan)
        except NotFoundError:  # deleted elsewhere
            caller.evict(session.id)
            return None
        return BranchLocation(branch, sent.messages, 0, system=system)

    async def _locate_named(self, named: NamedSession) -> BranchLocation:
        if not self._always_append and (location := self._open_end(named)) is not None:
            return replace(location, may_be_stale=True)
        location, forks = await to_thread(self._read_named, named)
        if not forks:
            return location
        return await fork_at(location, _reuse_system(location.branch, self._sent.system))

    def _open_end(self, named: NamedSession) -> BranchLocation | None:
        """Return the end of the branch if its session is open; None if the store must be read."""
        sent, branch = self._sent, self._caller.cached_branch(named.session, named.branch or _MAIN)
        has_history = named.history == "whole" or sent.has_assistant or sent.has_results
        if branch is None or has_history:
            return None
        if sent.system is not None and _system_text(branch) != sent.system:
            return None
        return BranchLocation(branch, sent.messages, None, system=_new_system(sent))

    def _read_named(self, named: NamedSession) -> tuple[BranchLocation, bool]:
        """Return the location in a named session, from the store, and whether to fork there."""
        sent, session = self._sent, self._caller.hold(self._caller.client.session(named.session))
        branch = None if named.branch is None else session.get_branch(named.branch)
        if named.history == "new" or (named.history is None and _sends_only_new(sent, session)):
            return _locate_at_end(_main_branch(session) if branch is None else branch, sent), False
        check_calls(sent.messages)
        branches = session.branches if branch is None else (branch,)
        turns = turns_of(sent.messages)
        match = best_match(turns[:-1] if self._always_append else turns, branches)
        if match is None:
            return _begin_in(session, sent), False
        new, system = sent.messages[match.message_count :], _optional_system(sent.system)
        return BranchLocation(match.branch, new, match.at, system=system), not match.is_at_end


def is_main_of_conversation(branch: Branch) -> bool:
    """Return whether a branch holds the items of a conversation, which its client alone adds to."""
    return branch.name == _MAIN and CLIENT_METADATA in branch.session.metadata


def _best_in_sessions(
    sessions: Iterable[Session], target: Sequence[HistoryTurn], enough: int
) -> HistoryMatch | None:
    """Return the longest match; stop reading sessions once it has `enough` turns."""
    best: HistoryMatch | None = None
    for session in sessions:
        match = best_match(target, session.branches)
        if match is not None and (best is None or match.turns > best.turns):
            best = match
        if best is not None and best.turns >= enough:
            break
    return best


def _main_branch(session: Session) -> Branch:
    """Return the main branch; create it if there is none."""
    branch = session.get_branch(_MAIN, None)
    return new_branch(session, None) if branch is None else branch


def _sends_only_new(sent: ClientMessages, session: Session) -> bool:
    """Return whether a client sends only new messages: none is the assistant's."""
    return not sent.has_assistant and len(session.branches) > 0


def _locate_at_end(branch: Branch, sent: ClientMessages) -> BranchLocation:
    """Return the location at the end of a branch, without comparing histories."""
    if sent.has_results:
        check_calls(sent.messages, [ClientToolCall.of(call).id for call in pending_calls(branch)])
    system = _new_system(sent)
    if system is not Unset and not sent.messages and _system_text(branch) != sent.system:
        branch.session.set_branch_system(branch, system)  # there may be no message to append
    return BranchLocation(branch, sent.messages, None, system=system)


async def continue_or_fork(
    location: BranchLocation, system: str | None, cache: BranchCache
) -> BranchLocation:
    """Continue a branch with this system message; fork it if it is busy or has more messages."""
    branch, location = location.branch, replace(location, system=_optional_system(system))
    busy = branch.id in cache.claims or is_main_of_conversation(branch)
    if location.at != tail_of(branch).total or busy:
        return await fork_at(location, _reuse_system(branch, system))
    return location


async def fork_location(location: BranchLocation) -> BranchLocation:
    """Fork the branch of a location, which keeps its system message."""
    system = location.branch.system_id if location.system is Unset else location.system
    return await fork_at(location, system)


def _begin_in(session: Session, sent: ClientMessages) -> BranchLocation:
    """Start a conversation on a new branch of a session."""
    system = _optional_system(sent.system)
    branch = new_branch(session, system)
    return BranchLocation(branch, sent.messages, 0, system=system)


def new_branch(session: Session, system: Message | None) -> Branch:
    """Create a branch; the first of a session is its main branch."""
    name = None if len(session.branches) else _MAIN
    try:
        return session.create_branch(name, system=system)
    except ExistsError:  # created meanwhile by another request
        return session.create_branch(system=system)


async def fork_at(location: BranchLocation, system: Message | UUID | None) -> BranchLocation:
    """Fork the branch of a location where it continues, and return the location on the fork.

    Raises ConflictError if the messages up to the fork point have changed, NotFoundError if the
    branch was removed.
    """
    branch = location.branch
    if location.at and location.last not in (None, message_at(branch, location.at)):
        raise ConflictError("Another client changed the history; send the request again.")
    at = tail_of(branch).total if location.at is None else location.at
    last = message_at(branch, at)
    for retries_left in range(_FORK_RETRIES, -1, -1):
        try:
            fork = await fork_history(branch, at, system=system, lease=first_lease())
        except ConflictError:  # perhaps only its system message has changed
            await to_thread(branch.session.refresh)
            if not retries_left or message_at(branch, at) != last:
                raise
        else:
            return replace(location, branch=fork, at=at)
    raise AssertionError("the last attempt returns or raises")


def _optional_system(text: str | None) -> Message | None:
    """Return a system message with this text; None if there is no text."""
    return system_message(text) if text else None


def _new_system(sent: ClientMessages) -> MaybeUnset[Message | None]:
    """Return the system message of a request, noting the part that lasts; Unset if it has none."""
    if sent.system is None:
        return Unset
    notes = None if sent.lasting == sent.system else {"lasting": sent.lasting or ""}
    return system_message(sent.system, notes) if sent.system else None


def _reuse_system(branch: Branch, text: str | None) -> Message | UUID | None:
    """Return the id of a branch's system message if it has this text, else a new message."""
    if text is None:
        return None
    old = branch.system
    return old.id if old is not None and _system_text(branch) == text else system_message(text)


def _system_text(branch: Branch) -> str:
    content = None if branch.system is None else branch.system.content
    return content.system_message or "" if isinstance(content, SystemContent) else ""


def begin_unstored(client: Client, sent: ClientMessages) -> BranchLocation:
    """Start a conversation in a new session that is not stored."""
    session = Session(services=client.services, agent=client.agent)
    return replace(_begin_in(session, sent), is_stored=False)


def with_schema(location: BranchLocation, schema: object) -> BranchLocation:
    """Ask for an output schema in the last new instruction, for models without that option."""
    messages = list(location.new_messages)
    for at in range(len(messages) - 1, -1, -1):
        content = messages[at].content
        if isinstance(content, InstructionContent):
            messages[at] = _with_content(messages[at], content.with_updates(response_model=schema))
            return replace(location, new_messages=tuple(messages))
    return location


def _with_content(message: Message, content: InstructionContent) -> Message:
    return Message(content, sender=message.sender, id=message.id, metadata=message.metadata)


def with_first_id(
    location: BranchLocation, uid: UUID, metadata: Mapping[str, object]
) -> BranchLocation:
    """Give the first new message an id and metadata by which the request is found again."""
    first, *rest = location.new_messages
    notes = {**first.metadata, **metadata, "said": [message.id.hex for message in rest]}
    identified = Message(first.content, sender=first.sender, id=uid, metadata=notes)
    return replace(location, new_messages=(identified, *rest))
