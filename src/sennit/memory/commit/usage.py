"""Usage records: contexts and skills that a session used, each counted once.

A use is recorded at the head of a branch and counted by the first commit that covers that head, on
whichever branch. Contexts sent as parts of a message are uses too, counted with their message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID, uuid5

from sennit import clock
from sennit.errors import InvalidTypeError, ValidationError, short_repr
from sennit.ids import new_id
from sennit.memory.history.history import EvidenceSource
from sennit.memory.scope import MemoryScope, plain_uri
from sennit.memory.uri import Uri
from sennit.messages.codec import dumps, loads
from sennit.messages.json_values import plain_dict
from sennit.messages.message import Message
from sennit.messages.parts import contexts_of
from sennit.sessions.branch import Branch
from sennit.stores.records.commits import UseRecord
from sennit.stores.records.files import CountUses

RECALLED = "recalled"
"""Marks a use as recalled from memory for a message."""
_SKILL_FIELDS = {"uri", "input", "output", "success"}


def usage_records(
    scope: MemoryScope, branch: Branch, contexts: Any, skill: Mapping[str, Any] | None
) -> tuple[UseRecord, ...]:
    """Return usage records; raises ValidationError for an invalid context or skill."""
    bodies: list[dict[str, Any]] = [
        {"uri": scope.reference(str(Uri.parse(uri)))} for uri in _as_list(contexts)
    ]
    if skill is not None:
        body = _skill_body(skill)
        bodies.append({**body, "uri": scope.reference(body["uri"])})
    if not bodies:
        raise ValidationError("Pass contexts= (URIs) or skill=.")
    head, now = _head_id(branch), clock.now_us()
    return tuple(UseRecord(new_id(), branch.id, now, head, dumps(body)) for body in bodies)


def recall_records(
    scope: MemoryScope, branch: Branch, items: Iterable[tuple[str, EvidenceSource | None]]
) -> tuple[UseRecord, ...]:
    """Return usage records of recalled items, by URI, and by id for messages.

    The id is derived from the branch, its head and the item, and a store ignores an id it has: so a
    repeated recall at the same head is recorded once.
    """
    head, now = _head_id(branch), clock.now_us()
    uses: list[UseRecord] = []
    for uri, source in items:
        body: dict[str, Any] = {"uri": scope.reference(uri), RECALLED: True}
        if source is not None:
            body |= {"session": str(source.session), "message": str(source.message)}
        encoded = dumps(body)
        uid = uuid5(branch.id, f"{head} {encoded.decode()}")
        uses.append(UseRecord(uid, branch.id, now, head, encoded))
    return tuple(uses)


def _head_id(branch: Branch) -> UUID | None:
    """Return the id of the last message of a branch."""
    tail = branch.tail
    return None if tail.total == 0 else tail.id_at(tail.total - 1)


def _as_list(contexts: Any) -> list[Any]:
    if contexts is None:
        return []
    if isinstance(contexts, (str, Uri)):
        return [contexts]
    if not isinstance(contexts, Iterable):
        raise InvalidTypeError(f"contexts must be a list of URIs, got {short_repr(contexts)}.")
    return list(contexts)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _skill_body(skill: Mapping[str, Any]) -> dict[str, Any]:
    fields = plain_dict(skill, "skill")
    if "uri" not in fields or fields.keys() - _SKILL_FIELDS:
        raise ValidationError(
            f"A skill needs a uri and may have input, output and success; got {sorted(fields)}."
        )
    if not isinstance(fields.get("success", True), bool):
        raise InvalidTypeError(
            f"skill['success'] must be True or False, got {short_repr(fields['success'])}."
        )
    uri = Uri.parse(fields["uri"])
    if uri.scope != "agent" or uri.names[:1] != ("skills",) or len(uri.names) < 2:
        raise ValidationError(
            f"A skill URI begins with viking://agent/skills/, got {short_repr(str(uri))}."
        )
    return {"success": True, **fields, "uri": str(uri), "skill": True}


def uses_to_count(
    branch: Branch, entries: Iterable[UUID], pending: Iterable[UseRecord]
) -> list[UseRecord]:
    """Return the pending uses that a commit of these entries counts.

    They are those at one of the entries, on whichever branch, and those of this branch whose head
    was archived before or is gone.
    """
    covered = {uid.int for uid in entries}
    archived = branch.session.archives.covering

    def is_due(use: UseRecord) -> bool:
        if use.head is not None and use.head.int in covered:
            return True
        is_pending = use.head is not None and use.head in branch and use.head.int not in archived
        return use.branch == branch.id and not is_pending

    return [use for use in pending if is_due(use)]


def count_uses(
    scope: MemoryScope, uses: Iterable[UseRecord], messages: Iterable[Message]
) -> tuple[Counter[str], list[dict[str, Any]]]:
    """Return the number of uses by reference, and the skills used."""
    counts: Counter[str] = Counter()
    skills: list[dict[str, Any]] = []
    for use in uses:
        body: dict[str, Any] = loads(use.body)
        counts[body["uri"]] += 1
        if body.pop("skill", False):
            skills.append({**body, "uri": plain_uri(body["uri"])})
    counts.update(
        scope.reference(part.uri) for message in messages for part in contexts_of(message)
    )
    return counts, skills


def usage_changes(scope: MemoryScope, counts: Counter[str]) -> list[CountUses]:
    """Return the changes that count uses of files, including files that the commit creates.

    The store ignores missing files.
    """
    locations = ((scope.locate_own(uri), count) for uri, count in counts.items())
    return [CountUses(*location, count) for location, count in locations if location is not None]
