"""Stored responses, found by id.

The id of a response contains the ids of its session and of its first input message, so it is found
without an index, and only in sessions of its owner. Its input and output follow each other on a
branch, which the next response continues, or forks if others have continued it.
"""

from __future__ import annotations

from asyncio import to_thread
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from uuid import UUID

from msgspec.structs import replace

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import ConflictError, NotFoundError
from sennit.messages.message import Message
from sennit.server.http.caches import BranchCache
from sennit.server.http.callers import Caller
from sennit.server.openai.derived_sessions import SOURCE
from sennit.server.openai.locate import BranchLocation, begin_unstored, continue_or_fork
from sennit.server.openai.response_builder import ResponseHead
from sennit.server.openai.translate import ClientMessages, ModelAnswer, answer_at, check_calls
from sennit.sessions.branch import Branch, messages_from
from sennit.sessions.run_repository import RunRepository
from sennit.sessions.segments import tail_of
from sennit.turns.recovery import find_unfinished_run
from sennit.turns.subscription import has_active_run

_PREFIX = "resp_"


def response_id(session: UUID, first: UUID, prefix: str = _PREFIX) -> str:
    """Return the id of a response, from its session and its first input message."""
    return prefix + urlsafe_b64encode(session.bytes + first.bytes).decode().rstrip("=")


def parse_response_id(name: str, prefix: str = _PREFIX) -> tuple[UUID, UUID] | None:
    """Return the ids of the session and the message in a response id; None if it is none."""
    try:
        raw = urlsafe_b64decode(name.removeprefix(prefix) + "=")
    except (NotBase64, ValueError):
        return None
    if not name.startswith(prefix) or len(raw) != 32:
        return None
    return UUID(bytes=raw[:16]), UUID(bytes=raw[16:])


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response and its position on a branch."""

    branch: Branch
    before: int
    """The number of messages before its input, without the system message."""
    since: Sequence[Message]
    """The messages of the branch from there on, at the time of the lookup."""

    @classmethod
    def at(cls, branch: Branch, first: UUID) -> StoredResponse:
        """Return the response with this first input message."""
        with branch.session.lock:  # others may add or remove the system message
            index = branch.index(first)
            before = index - (branch.system_id is not None)
            return cls(branch, before, messages_from(branch, index))

    @property
    def session(self) -> Session:
        """The session of the response."""
        session = self.branch.session
        assert isinstance(session, Session)
        return session

    @property
    def first(self) -> Message:
        """The first input message."""
        return self.since[0]

    @property
    def _count(self) -> int:
        """The number of input messages, without those removed since."""
        rest = set(self.first.metadata.get("said", ()))
        return 1 + sum(1 for _ in takewhile(lambda message: message.id.hex in rest, self.since[1:]))

    @property
    def input_messages(self) -> Sequence[Message]:
        """The input messages."""
        return self.since[: self._count]

    @property
    def answer(self) -> ModelAnswer:
        """The output messages; empty if there are none."""
        return answer_at(self.since[self._count :])

    @property
    def complete_answer(self) -> ModelAnswer | None:
        """The output messages; None if there are none or they were cut off."""
        return self.answer if self.answer.is_complete else None

    @property
    def end(self) -> int:
        """The number of messages up to its end, without the system message."""
        return self.before + self._count + len(self.answer.messages)

    @property
    def lasting(self) -> str | None:
        """The instructions, as far as they apply to later responses."""
        return self.first.metadata.get("lasting")

    @property
    def head(self) -> ResponseHead:
        """The fields of the response beside its answer."""
        first = self.first
        return ResponseHead(
            response_id(self.session.id, first.id),
            first.created_us // 1_000_000,
            dict(first.metadata.get("response", {})),
        )


async def find_response(
    caller: Caller, name: str, prefix: str = _PREFIX, key: str = "response"
) -> StoredResponse | None:
    """Return a response by its id, read from the store; None if the owner has none.

    `key` is in the metadata of the first input message of all responses of this kind.
    """
    ids = parse_response_id(name, prefix)
    return None if ids is None else await to_thread(_read_response, caller, *ids, key)


def _read_response(
    caller: Caller, session_id: UUID, first: UUID, key: str
) -> StoredResponse | None:
    try:
        session = caller.hold(caller.client.session(session_id, create=False))
    except NotFoundError:
        return None
    if first not in session.messages or key not in session.messages[first].metadata:
        return None
    return stored_in(session, first)


def stored_in(session: Session, first: UUID) -> StoredResponse | None:
    """Return the response with this first message; None if no branch has it.

    Of the branches that share it, the oldest with a complete answer is taken, else the oldest.
    """
    holding = [branch for branch in session.branches if first in branch]
    holding.sort(key=lambda branch: branch.created_us)
    responses = (StoredResponse.at(branch, first) for branch in holding)
    oldest = next(responses, None)
    if oldest is None or oldest.answer.is_complete:
        return oldest
    return next((response for response in responses if response.answer.is_complete), oldest)


def locate_stored(stored: StoredResponse) -> BranchLocation:
    """Return the end of a response; without a complete answer, where to retry it.

    A partial answer at the end of the branch is erased.
    """
    branch, partial = stored.branch, stored.answer.messages
    if stored.answer.is_complete:
        return BranchLocation(branch, (), stored.end)
    at = stored.before + len(stored.input_messages)
    run = find_unfinished_run(RunRepository(branch))
    resumes = run is not None and any(message.id == stored.first.id for message in run.said)
    if partial and stored.end == tail_of(branch).total:
        stored.session.remove_messages(partial, forget=False)
    return BranchLocation(branch, (), at, last=stored.input_messages[-1].id, resumes=resumes)


async def locate_next(
    stored: StoredResponse, sent: ClientMessages, cache: BranchCache
) -> BranchLocation:
    """Return where a response is continued; raise HTTPError 400 for calls without results."""
    check_calls(sent.messages, [call.id for call in stored.answer.calls])
    location = BranchLocation(stored.branch, sent.messages, stored.end)
    return await continue_or_fork(location, sent.system, cache)


def copy_branch(
    client: Client, branch: Branch | None, length: int, sent: ClientMessages
) -> BranchLocation:
    """Copy the first `length` messages of a branch into a session that is not stored.

    The system message does not count. Raises HTTPError 400 for calls without results.
    """
    history: list[Message] = []
    if branch is not None:
        first = int(branch.system is not None)
        history = branch.session.messages.pick(branch[first : first + length])
    check_calls([*history, *sent.messages])
    location = begin_unstored(client, sent)
    location.session.add_messages(history, branches=location.branch)
    return replace(location, at=len(history))


def delete_response(caller: Caller, stored: StoredResponse) -> None:
    """Erase the input and output of a response; delete a derived session that holds no more.

    Memories of it stay: forgetting needs the scope "admin". Raises ConflictError while the response
    is being generated, since its answer would stay.
    """
    session = stored.session
    messages = [*stored.input_messages, *stored.answer.messages]
    if delete_derived(caller, session, messages):
        return
    if not stored.answer.messages and has_active_run(RunRepository(stored.branch)):
        raise ConflictError("The response is still being generated; delete it afterwards.")
    session.remove_messages(messages, forget=False)


def delete_derived(caller: Caller, session: Session, messages: list[Message]) -> bool:
    """Delete a derived session that holds only these messages; return False for any other."""
    if session.metadata != SOURCE or not _holds_only(session, messages):
        return False
    caller.drop(session.id)
    caller.client.delete_session(session.id)
    return True


def _holds_only(session: Session, messages: list[Message]) -> bool:
    """Return whether no branch has other messages."""
    ids = {message.id for message in messages}
    with session.lock:
        return all(
            tail_of(branch).total <= len(ids)
            and ids.issuperset(branch[len(branch) - tail_of(branch).total :])
            for branch in session.branches
        )
