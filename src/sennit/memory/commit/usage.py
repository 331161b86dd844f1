"""Usage records: contexts and skills that a session used, each counted once.

A use is recorded at the head of a branch and counted by the first commit that covers that head, on
whichever branch. Contexts sent as parts of a message are uses too, counted with their message.

What was used is text that a program put into prompts, so `mark_injected` marks it: it is never
extracted as the user's words. Usage records name a file by its URI, a message by its id, an archive
by its abstract; erased texts are missing. A file may have changed between the prompt and the
commit, so all its versions since its first use count. Applications paste such lines into user
messages, so a recalled message also counts with its date and speaker in front.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid5

from sennit import clock
from sennit.errors import InvalidTypeError, NotFoundError, ValidationError, listed, short_repr
from sennit.ids import new_id
from sennit.memory.history.evidence import quote_messages, recalled_line
from sennit.memory.history.history import EvidenceSource
from sennit.memory.scope import MemoryScope, plain_uri
from sennit.memory.uri import Uri
from sennit.messages.codec import dumps, loads
from sennit.messages.content import InstructionContent
from sennit.messages.json_values import plain_dict
from sennit.messages.message import Message
from sennit.messages.parts import contexts_of
from sennit.sessions.branch import Branch
from sennit.sessions.segments import tail_of
from sennit.sessions.unarchived import archives_of
from sennit.stores.records.commits import UseRecord
from sennit.stores.records.files import CountUses

RECALLED = "recalled"
"""Marks a use as recalled from memory for a message."""
_SENT, _TEXT = "sent", "text"  # the position in the prompt, and the text
_EXCERPT = "excerpt"  # the start and the end of what was sent of a message
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
    scope: MemoryScope,
    branch: Branch,
    items: Iterable[tuple[str, EvidenceSource | None, str | None, tuple[int, int] | None]],
) -> tuple[UseRecord, ...]:
    """Return usage records of recalled items, by URI, and by id and excerpt for messages.

    With a text, the item was sent with the last message of the branch, and is sent again with it
    in later prompts. A message is quoted anew then, because it may be removed. The id is derived
    from the branch, its head and the item, and a store ignores an id it has: so a repeated recall
    at the same head is recorded once.
    """
    head, now = _head_id(branch), clock.now_us()
    uses: list[UseRecord] = []
    for number, (uri, source, text, excerpt) in enumerate(items):
        body: dict[str, Any] = {"uri": scope.reference(uri), RECALLED: True}
        if source is not None:
            body |= source.to_dict()
            body |= {} if excerpt is None else {_EXCERPT: list(excerpt)}
        if text is not None:
            body |= {_SENT: number} if source is not None else {_SENT: number, _TEXT: text}
        encoded = dumps(body)
        uid = uuid5(branch.id, f"{head} {encoded.decode()}")
        uses.append(UseRecord(uid, branch.id, now, head, encoded))
    return tuple(uses)


@dataclass(frozen=True, slots=True)
class SentItem:
    """An item that was sent with a message."""

    uri: str
    text: str | None
    """Its text; None for a message, which is quoted anew."""
    source: EvidenceSource | None
    """The message that it quotes."""
    excerpt: tuple[int, int] | None = None
    """The part of the message that was sent; None for all of it."""


def sent_items(uses: Iterable[UseRecord]) -> dict[UUID, list[SentItem]]:
    """Return the recalled items that were sent, by the message that they were sent with."""
    found: dict[UUID, list[tuple[int, SentItem]]] = {}
    for use in uses:
        if use.head is None or b'"sent":' not in use.body:
            continue
        body: dict[str, Any] = loads(use.body)
        source = None
        if (session := body.get("session")) and (message := body.get("message")):
            source = EvidenceSource(UUID(session), UUID(message))
        item = SentItem(plain_uri(body["uri"]), body.get(_TEXT), source, _excerpt(body))
        found.setdefault(use.head, []).append((body[_SENT], item))
    return {
        head: [item for _, item in sorted(items, key=lambda pair: pair[0])]
        for head, items in found.items()
    }


def _excerpt(body: dict[str, Any]) -> tuple[int, int] | None:
    excerpt = body.get(_EXCERPT)
    return None if excerpt is None else (excerpt[0], excerpt[1])


def _head_id(branch: Branch) -> UUID | None:
    """Return the id of the last message of a branch."""
    tail = tail_of(branch)
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
            f"A skill needs a uri and may have input, output and success; got {listed(fields)}."
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
    archived = archives_of(branch.session).covering

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


_ABSTRACT = re.compile(r"viking://session/([^/]+)/history/archive_(\d{1,9})/\.abstract\.md")


def mark_injected(
    scope: MemoryScope, messages: Sequence[Message], uses: Iterable[UseRecord]
) -> list[Message]:
    """Return messages with the injected texts among them, marked as injected.

    A text recalled for a message comes after it, because the message was written first.
    """
    entries = {message.id for message in messages}
    unplaced: list[UseRecord] = []
    by_message: dict[UUID, list[UseRecord]] = {}
    for use in uses:
        is_recalled = use.head in entries and loads(use.body).get(RECALLED)
        (by_message.setdefault(use.head, []) if is_recalled and use.head else unplaced).append(use)
    result = [*map(_injected_message, _injected_texts(scope, messages, unplaced))]
    seen = {use.body for use in unplaced}
    for message in messages:
        new = [use for use in by_message.get(message.id, ()) if use.body not in seen]
        seen.update(use.body for use in new)
        result += [message, *map(_injected_message, _injected_texts(scope, (), new))]
    return result


def _injected_message(text: str) -> Message:
    return Message(InstructionContent(instruction=text), metadata={"injected": True})


def _injected_texts(
    scope: MemoryScope, messages: Iterable[Message], uses: Iterable[UseRecord]
) -> list[str]:
    """Return the texts of contexts that were sent with messages or recorded as used."""
    parts = [
        (part, clock.from_datetime(message.created_at))
        for message in messages
        for part in contexts_of(message)
    ]
    bodies: list[dict[str, Any]] = []
    uris = [(part.uri, created) for part, created in parts]
    for use in uses:
        bodies.append(loads(use.body))
        uris.append((bodies[-1]["uri"], use.created))
    first_use: dict[str, int] = {}
    for uri, created in uris:
        first_use[uri] = min(created, first_use.get(uri, created))
    files = [text for uri, since in first_use.items() for text in _texts_at(scope, uri, since)]
    return [
        *(part.abstract for part, _ in parts if part.abstract),
        *files,
        *_recalled_texts(scope, bodies),
    ]


def _texts_at(scope: MemoryScope, uri: str, since: int) -> Iterator[str]:
    """Yield the texts of a file since a time, or the abstract of an archive."""
    file = scope.file_at(uri)
    if file is not None:
        versions = [file.latest]
        if file.latest.written > since:
            versions = scope.store.file_versions(file.owner, file.id)
        earlier = sum(version.written <= since for version in versions)
        for version in versions[max(earlier - 1, 0) :]:
            yield version.body.decode(errors="replace")
    elif match := _ABSTRACT.fullmatch(uri):
        yield from _archive_abstract(scope, match[1], int(match[2]))


def _archive_abstract(scope: MemoryScope, session: str, number: int) -> Iterator[str]:
    try:
        commits = scope.store.commits_numbered(scope.user, scope.session_id(session), [number])
    except NotFoundError:
        return  # the session is gone
    for commit in commits:
        yield str(loads(commit.body).get("abstract", ""))


def _recalled_texts(scope: MemoryScope, bodies: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield recalled messages, bare and as prompts show them."""
    wanted = {
        EvidenceSource(UUID(session), UUID(message)): _excerpt(body)
        for body in bodies
        if (session := body.get("session")) and (message := body.get("message"))
    }
    for source, quoted in quote_messages(scope, wanted).items() if wanted else ():
        yield from (quoted.text, recalled_line(quoted), recalled_line(quoted, wanted[source]))
        day = f"[{quoted.said_at:%Y-%m-%d}]"
        yield from (f"{day} {quoted.text}", f"{quoted.speaker or quoted.role}: {quoted.text}")
