"""Usage records: contexts and skills that a session used, counted once.

A use is kept at the head of a branch, and counted by the commit that covers that head: on whichever
branch that happens, it happens once. Contexts that came as parts of a message are uses too, and are
counted with their message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

from sennit import clock
from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.ids import new_id
from sennit.memory.history.history import EvidenceSource
from sennit.memory.scope import MemoryScope
from sennit.memory.uri import Uri
from sennit.messages.codec import dumps, loads
from sennit.messages.json_values import plain_dict
from sennit.messages.message import Message
from sennit.messages.parts import contexts_of
from sennit.sessions.branch import Branch
from sennit.stores.records.commits import UseRecord
from sennit.stores.records.files import CountUses

RECALLED = "recalled"
"""Marks what was recalled for a message, which was there before."""
_SKILL = {"uri", "input", "output", "success"}


def uses(branch: Branch, contexts: Any, skill: Mapping[str, Any] | None) -> tuple[UseRecord, ...]:
    """Return usage records; raises ValidationError for an invalid context or skill."""
    bodies: list[dict[str, Any]] = [{"uri": str(Uri.parse(uri))} for uri in _listed(contexts)]
    if skill is not None:
        bodies.append(_skill(skill))
    if not bodies:
        raise ValidationError("Pass contexts= (URIs) or skill=.")
    head, now = _head(branch), clock.now_us()
    return tuple(UseRecord(new_id(), branch.id, now, head, dumps(body)) for body in bodies)


def recalled(
    branch: Branch, found: Iterable[tuple[str, EvidenceSource | None]]
) -> tuple[UseRecord, ...]:
    """Return usage records of recalled items, by URI, and by id for messages.

    The same at the same place is the same use. Its id says so, and a store leaves alone what it
    has: nobody needs to look whether it was noted.
    """
    head, now = _head(branch), clock.now_us()
    uses: list[UseRecord] = []
    for uri, source in found:
        body: dict[str, Any] = {"uri": uri, RECALLED: True}
        if source is not None:
            body |= {"session": str(source.session), "message": str(source.message)}
        made = dumps(body)
        uid = uuid5(branch.id, f"{head} {made.decode()}")
        uses.append(UseRecord(uid, branch.id, now, head, made))
    return tuple(uses)


def _head(branch: Branch) -> UUID | None:
    """The last message of a branch."""
    tail = branch.tail
    return None if tail.total == 0 else tail.id_at(tail.total - 1)


def _listed(contexts: Any) -> list[Any]:
    if contexts is None:
        return []
    if isinstance(contexts, (str, Uri)):
        return [contexts]
    if not isinstance(contexts, Iterable):
        raise InvalidTypeError(f"contexts must be a list of URIs, got {shown(contexts)}.")
    return list(contexts)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _skill(skill: Mapping[str, Any]) -> dict[str, Any]:
    given = plain_dict(skill, "skill")
    if "uri" not in given or given.keys() - _SKILL:
        raise ValidationError(
            f"A skill needs a uri and may have input, output and success; got {sorted(given)}."
        )
    if not isinstance(given.get("success", True), bool):
        raise InvalidTypeError(f"skill['success'] is True or False, got {shown(given['success'])}.")
    uri = Uri.parse(given["uri"])
    if uri.scope != "agent" or uri.names[:1] != ("skills",) or len(uri.names) < 2:
        raise ValidationError(
            f"A skill URI begins with viking://agent/skills/, got {shown(str(uri))}."
        )
    return {"success": True, **given, "uri": str(uri), "skill": True}


def due(branch: Branch, entries: Iterable[UUID], waiting: Iterable[UseRecord]) -> list[UseRecord]:
    """The uses that a commit of these entries counts, of those that none counts yet.

    They are those at one of the entries, on whichever branch, and those of this branch whose place
    was archived before or is gone.
    """
    new = {uid.int for uid in entries}
    old = branch.session.archives.covering

    def is_due(use: UseRecord) -> bool:
        if use.head is not None and use.head.int in new:
            return True
        waits = use.head is not None and use.head in branch and use.head.int not in old
        return use.branch == branch.id and not waits

    return [use for use in waiting if is_due(use)]


def counted(
    found: Iterable[UseRecord], messages: Iterable[Message]
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Return the number of uses of each URI, and the skills used."""
    times: Counter[str] = Counter()
    skills: list[dict[str, Any]] = []
    for use in found:
        body: dict[str, Any] = loads(use.body)
        times[body["uri"]] += 1
        if body.pop("skill", False):
            skills.append(body)
    times.update(part.uri for message in messages for part in contexts_of(message))
    return times, skills


def counting(realm: MemoryScope, times: Counter[str]) -> list[CountUses]:
    """The changes that count uses of files, those included that the same commit writes.

    The store ignores a file that is not there.
    """
    places = ((realm.own_place(uri), number) for uri, number in times.items())
    return [CountUses(*place, number) for place, number in places if place is not None]
