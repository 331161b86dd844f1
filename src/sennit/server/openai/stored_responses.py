"""Stored responses, found by id.

The id of a response holds those of its session and of the first thing that was said for it, so it
is found without an index, and only among the sessions of its owner. On its branch stand what was
said, then what was answered; continuing it goes on there, or on a fork if others have done so.
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
from sennit.server.http.callers import Caller
from sennit.server.openai.derived_sessions import SOURCE
from sennit.server.openai.locate import BranchLocation, begin_apart, continued
from sennit.server.openai.response_builder import ResponseHead
from sennit.server.openai.translate import ClientMessages, ModelAnswer, answer_at, check_calls
from sennit.sessions.branch import Branch
from sennit.sessions.run_repository import RunRepository
from sennit.turns.recovery import unfinished
from sennit.turns.subscription import is_under_way

_PREFIX = "resp_"


def response_id(session: UUID, first: UUID) -> str:
    """The id of a response, by its session and the first thing said for it."""
    return _PREFIX + urlsafe_b64encode(session.bytes + first.bytes).decode().rstrip("=")


def _ids(name: str) -> tuple[UUID, UUID] | None:
    try:
        raw = urlsafe_b64decode(name.removeprefix(_PREFIX) + "=")
    except (NotBase64, ValueError):
        return None
    if not name.startswith(_PREFIX) or len(raw) != 32:
        return None
    return UUID(bytes=raw[:16]), UUID(bytes=raw[16:])


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response that stands on a branch."""

    branch: Branch
    before: int
    """How many messages stand before what was said for it, without the system message."""
    since: Sequence[Message]
    """What stands on the branch from there on, as it was when it was looked up."""

    @classmethod
    def at(cls, branch: Branch, first: UUID) -> StoredResponse:
        """The response for which a message of the branch was said first."""
        with branch.session.lock:  # others may give the branch a system message, or take it away
            index = branch.index(first)
            before = index - (branch.system_id is not None)
            return cls(branch, before, branch.items_of(branch.session.messages, index))

    @property
    def session(self) -> Session:
        """The session it is in."""
        session = self.branch.session
        assert isinstance(session, Session)
        return session

    @property
    def first(self) -> Message:
        """The first thing that was said for it."""
        return self.since[0]

    @property
    def _count(self) -> int:
        """The number of input messages, without those that were removed since."""
        rest = set(self.first.metadata.get("said", ()))
        return 1 + sum(1 for _ in takewhile(lambda message: message.id.hex in rest, self.since[1:]))

    @property
    def said(self) -> Sequence[Message]:
        """The input messages."""
        return self.since[: self._count]

    @property
    def answer(self) -> ModelAnswer:
        """The output messages; empty if there are none."""
        return answer_at(self.since[self._count :])

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


async def find_response(caller: Caller, name: str) -> StoredResponse | None:
    """The response with that id as the store has it now, if the owner has it."""
    ids = _ids(name)
    return None if ids is None else await to_thread(_looked_up, caller, *ids)


def _looked_up(caller: Caller, session: UUID, first: UUID) -> StoredResponse | None:
    try:
        return _response(caller.open.hold(caller.client.session(session, create=False)), first)
    except NotFoundError:
        return None


def _response(session: Session, first: UUID) -> StoredResponse | None:
    if first not in session.messages:
        return None
    if "response" not in session.messages[first].metadata:
        return None
    return stored_in(session, first)


def stored_in(session: Session, first: UUID) -> StoredResponse | None:
    """The response for which a message was said first, on the oldest branch with all of it.

    Forks have it too; one that was cut off may have been answered on a fork.
    """
    holding = [branch for branch in session.branches if first in branch]
    holding.sort(key=lambda branch: branch.created_us)
    responses = (StoredResponse.at(branch, first) for branch in holding)
    oldest = next(responses, None)
    if oldest is None or oldest.answer.whole:
        return oldest
    return next((response for response in responses if response.answer.whole), oldest)


def place_again(stored: StoredResponse) -> BranchLocation:
    """Return where a response is answered that came to nothing or was cut off.

    What was left of the answer is erased if nothing was said since.
    """
    branch, partial, at = stored.branch, stored.answer.messages, stored.before + len(stored.said)
    run = unfinished(RunRepository(branch))
    resumes = run is not None and any(message.id == stored.first.id for message in run.said)
    if partial and stored.end == branch.tail.total:
        stored.session.remove_messages(partial, forget=False)
    return BranchLocation(branch, (), at, last=stored.said[-1].id, resumes=resumes)


async def place_after(caller: Caller, stored: StoredResponse, sent: ClientMessages) -> BranchLocation:
    """Return where a response is continued; raises HTTPError 400 for calls without results."""
    check_calls(sent.messages, [call.id for call in stored.answer.calls])
    location = BranchLocation(stored.branch, sent.messages, stored.end)
    return await continued(location, sent.system, caller.known)


def copied_after(
    client: Client, stored: StoredResponse | None, sent: ClientMessages
) -> BranchLocation:
    """The same in a session that no store keeps."""
    if stored is None:
        return copied_on(client, None, 0, sent)
    return copied_on(client, stored.branch, stored.end, sent)


def copied_on(
    client: Client, branch: Branch | None, length: int, sent: ClientMessages
) -> BranchLocation:
    """The same after so many messages of a branch, the system message aside."""
    history: list[Message] = []
    if branch is not None:
        first = int(branch.system is not None)
        history = branch.session.messages.pick(branch[first : first + length])
    check_calls([*history, *sent.messages])
    location = begin_apart(client, sent)
    location.session.add_messages(history, branches=location.branch)
    return replace(location, at=len(history))


def delete_response(caller: Caller, stored: StoredResponse) -> None:
    """Erase what was said and answered, in one step; a session made for it alone goes instead.

    What was remembered of it stays: forgetting needs the scope "admin". Raises ConflictError while
    it is being answered, as the answer would stay.
    """
    session = stored.session
    messages = [*stored.said, *stored.answer.messages]
    if session.metadata == SOURCE and _holds_only(session, messages):
        caller.open.drop(session.id)
        caller.client.delete_session(session.id)
    elif not stored.answer.messages and is_under_way(RunRepository(stored.branch)):
        raise ConflictError("The response is being answered; delete it when that has ended.")
    else:
        session.remove_messages(messages, forget=False)


def _holds_only(session: Session, messages: list[Message]) -> bool:
    """Return whether nothing else was said on any branch."""
    ids = {message.id for message in messages}
    with session.lock:
        return all(
            branch.tail.total <= len(ids)
            and ids.issuperset(branch[len(branch) - branch.tail.total :])
            for branch in session.branches
        )
