"""Import of exported conversations: each becomes a session, its tree the branches.

All ids are derived: a session's from its owner and the id of the conversation, a message's from
the id of its node and its content. So an import can be repeated: what is stored is found, a
conversation that has grown extends its branch, and one that was changed gets a branch with the
changed messages, which shares what is unchanged. Nothing stored is replaced or removed.

Conversations are written in batches, each with one sync to disk. One that cannot be read is
skipped, and reported with its position and the reason; the others are imported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args
from uuid import UUID, uuid5

from sennit import clock
from sennit.errors import (
    ArchiveError,
    ConflictError,
    ExistsError,
    NotFoundError,
    SennitError,
    ValidationError,
    did_you_mean,
    short_repr,
)
from sennit.ids import new_id
from sennit.messages.blob_reference import named_blobs
from sennit.messages.codec import dumps, loads
from sennit.messages.content import MessageContent, MessageRole, SystemContent
from sennit.messages.json_values import validate_text
from sennit.messages.message import Message
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    MAX_NAME_BYTES,
    AddBranch,
    AddMessages,
    Append,
    BranchRecord,
    Change,
    MessageRecord,
    Owner,
    SegmentRecord,
    SessionRecord,
    Write,
    session_key,
)
from sennit.stores.segment_graph import MAIN
from sennit.stores.session_ids import session_id
from sennit.stores.transfer.chat_exports import chatgpt, claude, llm_logs, openai_jsonl
from sennit.stores.transfer.chat_exports.chat import Chat, ChatNode
from sennit.stores.transfer.chat_exports.files import (
    Entry,
    check_exists,
    entries,
    first_bytes,
    is_archive,
    reading_files,
    replace_unstorable,
)
from sennit.stores.transfer.export_import import (
    ImportSummary,
    Progress,
    ReadMemories,
    import_sessions,
    needed_segments,
)

ImportFormat: TypeAlias = Literal["archive", "chatgpt", "claude", "openai", "llm"]
FORMATS: tuple[str, ...] = get_args(ImportFormat)
"""The formats that `import_file` reads; "archive" is that of `sennit export`."""

_IMPORTED = "imported"
"""The metadata key of imported sessions and branches; its value names the format."""
_MAX_PROBLEMS = 100
_MAX_CACHED_SESSIONS = 16
_BATCH_WRITES = 100
_BATCH_BYTES = 8 << 20
_MAX_ATTEMPTS = 5
_CONCURRENT_ERRORS = (ExistsError, NotFoundError, ConflictError)
"""Refusals of a write because the session was created, changed or deleted in the meantime."""
_SKIPPED_ERRORS = (ValidationError, *_CONCURRENT_ERRORS)
_SENDERS = {MessageRole.USER: "user", MessageRole.ASSISTANT: "assistant"}
_CONVERTERS: dict[str, Callable[[dict[str, Any]], Chat]] = {
    "chatgpt": chatgpt.chat_of,
    "claude": claude.chat_of,
    "openai": openai_jsonl.chat_of,
}
_FORMAT_BY_KEY = {"mapping": "chatgpt", "chat_messages": "claude", "messages": "openai"}


def import_file(
    store: Store,
    owner: Owner,
    path: Path,
    format: str | None = None,
    progress: Progress | None = None,
    *,
    read_memories: ReadMemories | None = None,
) -> ImportSummary:
    """Import an archive, or the conversations that another program exported.

    The format is detected unless it is named. Raises ValidationError if the format is unknown, and
    ArchiveError if the file cannot be read as one.
    """
    if format is not None and format not in FORMATS:
        raise ValidationError(
            f"{short_repr(format)} is not a format that can be imported."
            f"{did_you_mean(format, FORMATS)} There are: {', '.join(FORMATS)}."
        )
    check_exists(path)
    if format is None and is_archive(path):
        format = "archive"
    if format == "archive":
        return import_sessions(store, owner, path, progress, read_memories=read_memories)
    report = progress or _ignore
    is_log = not path.is_dir() and first_bytes(path, len(llm_logs.MAGIC)) == llm_logs.MAGIC
    if is_log and format in (None, "llm"):
        return _import_logs(_Importer(store, owner), path, report)
    if is_log or format == "llm":
        found = "a SQLite file" if is_log else "not a SQLite file"
        raise ArchiveError(f"{str(path)!r} is {found}, which the format {format!r} is not.")
    return _import_json(_Importer(store, owner), path, format, report)


def _ignore(_done: int, _total: int) -> None:
    """Do nothing: nobody watches the progress."""


def _import_logs(importer: _Importer, path: Path, report: Progress) -> ImportSummary:
    with llm_logs.reading_logs(path) as log:
        total = log.count()
        for done, (position, load) in enumerate(log.entries(), 1):
            importer.add(position, "llm", load)
            report(min(done, total), total)
    return importer.summary("llm")


def _import_json(
    importer: _Importer, path: Path, format: str | None, report: Progress
) -> ImportSummary:
    found: str | None = format
    with reading_files(path) as files:
        total, before = sum(file.size for file in files), 0
        for file in files:
            for number, entry in enumerate(entries(file), 1):
                position = f"{file.name}, conversation {number}"
                detected = importer.add_entry(position, entry, format)
                found = found or detected
                report(before + min(entry.end, file.size), total)
            before += file.size
    if found is None:
        raise ArchiveError(
            f"{str(path)!r} is in none of the formats that can be imported: {', '.join(FORMATS)}. "
            f"{importer.first_problem}".rstrip()
        )
    return importer.summary(found)


class _Head(NamedTuple):
    """The place of a message in the histories of a session."""

    segment: UUID
    length: int
    """The number of messages up to it."""


@dataclass(slots=True)
class _Stored:
    """The stored tree of a session, kept up to date while its conversations are imported.

    A history is identified by the digest of its message ids; the empty one has the session's id.
    """

    id: UUID
    is_new: bool
    messages: set[UUID] = field(default_factory=set[UUID])
    branch_names: set[str] = field(default_factory=set[str])
    places: dict[UUID, _Head] = field(default_factory=dict[UUID, _Head])
    """The place of the last message of each history."""
    ends: dict[UUID, tuple[UUID, UUID, int]] = field(
        default_factory=dict[UUID, tuple[UUID, UUID, int]]
    )
    """The imported branch that has exactly this history, its segment and the length of that."""
    branches: dict[UUID, BranchRecord] = field(default_factory=dict[UUID, BranchRecord])
    """A branch that uses each segment."""
    forks: int = 0


class _PendingWrite(NamedTuple):
    """A conversation to write with the current batch."""

    position: str
    chat: Chat
    format: str
    write: Write

    @property
    def messages(self) -> list[MessageRecord]:
        """The new messages."""
        changes = self.write.changes
        return [
            one for change in changes if isinstance(change, AddMessages) for one in change.messages
        ]


class _Importer:
    """Writes conversations of one file, and counts."""

    def __init__(self, store: Store, owner: Owner) -> None:
        self._store = store
        self._owner = owner
        self._sessions: OrderedDict[UUID, _Stored] = OrderedDict()
        self._seen = self._new_sessions = self._new_branches = self._new_messages = 0
        self._skipped = 0
        self._problems: list[str] = []
        self._batch: list[_PendingWrite] = []
        self._batch_bytes = 0

    @property
    def first_problem(self) -> str:
        """The first reason for which a conversation was skipped."""
        return self._problems[0] if self._problems else ""

    def summary(self, format: str) -> ImportSummary:
        """Write what is pending, and return the result."""
        self._flush()
        return ImportSummary(
            sessions=self._seen,
            new_sessions=self._new_sessions,
            new_messages=self._new_messages,
            new_branches=self._new_branches,
            format=format,
            skipped=self._skipped,
            problems=tuple(self._problems),
        )

    def add_entry(self, position: str, entry: Entry, format: str | None) -> str | None:
        """Import an entry of a JSON file; return its format, None if it is unknown."""
        found: list[str] = []

        def load() -> Chat:
            value = _decode(entry)
            names = [name for key, name in _FORMAT_BY_KEY.items() if key in value]
            if not names and format is None:
                raise ValidationError(
                    "It has neither 'mapping' (ChatGPT) nor 'chat_messages' (Claude) nor "
                    "'messages' (OpenAI)."
                )
            found.append(format or names[0])
            return _CONVERTERS[found[0]](value)

        self.add(position, lambda: found[0], load)
        return found[0] if found else None

    def add(self, position: str, format: str | Callable[[], str], load: Callable[[], Chat]) -> None:
        """Import a conversation, or note why it was skipped."""
        try:
            chat = load()
            self._plan(position, chat, format if isinstance(format, str) else format())
        except _SKIPPED_ERRORS as error:
            self._skip(position, error)

    def _skip(self, position: str, error: SennitError) -> None:
        self._skipped += 1
        if len(self._problems) < _MAX_PROBLEMS:
            self._problems.append(f"{position}: {error}")

    def _plan(self, position: str, chat: Chat, format: str) -> None:
        """Add the changes that a conversation makes to the batch, and write it once it is full."""
        self._add_changes(position, chat, format)
        if len(self._batch) >= _BATCH_WRITES or self._batch_bytes >= _BATCH_BYTES:
            self._flush()

    def _add_changes(self, position: str, chat: Chat, format: str) -> None:
        """Add the changes that a conversation makes to the batch."""
        key = session_key(f"{format}-{_identifier(chat.id)}")
        stored = self._stored(session_id(self._owner, key))
        try:
            plan = _Plan(chat, stored, format)
            changes = plan.changes()
            if not plan.has_messages:
                return
            create = _new_session(stored.id, key, chat.title, format, plan.created)
        except BaseException:
            self._sessions.pop(stored.id, None)  # it contains what will not be written
            raise
        if not changes:
            self._seen += 1
            return
        new = create if stored.is_new else None
        pending = _PendingWrite(
            position, chat, format, Write(self._owner, stored.id, tuple(changes), new)
        )
        stored.is_new = False
        self._batch.append(pending)
        self._batch_bytes += plan.size

    def _flush(self) -> None:
        """Write the batch; raises the error of a store that fails.

        A conversation that another import wrote in the meantime is compared with what it wrote.
        """
        for attempt in range(_MAX_ATTEMPTS):
            refused = self._write_batch(is_last=attempt == _MAX_ATTEMPTS - 1)
            for pending in refused:
                try:
                    self._add_changes(pending.position, pending.chat, pending.format)
                except _SKIPPED_ERRORS as error:
                    self._skip(pending.position, error)
            if not refused:
                return

    def _write_batch(self, *, is_last: bool) -> list[_PendingWrite]:
        """Write the batch once; return the conversations to try again, none at the last time."""
        batch, self._batch, self._batch_bytes = self._batch, [], 0
        refused: list[_PendingWrite] = []
        results = self._store.write_many([pending.write for pending in batch]) if batch else []
        for pending, result in zip(batch, results, strict=True):
            if isinstance(result, SennitError):
                self._sessions.pop(pending.write.session, None)
                if not isinstance(result, _SKIPPED_ERRORS):
                    raise result
                if is_last or not isinstance(result, _CONCURRENT_ERRORS):
                    self._skip(pending.position, result)
                else:
                    refused.append(pending)
                continue
            self._seen += 1
            self._new_sessions += pending.write.create is not None
            self._new_messages += len(pending.messages)
            changes = pending.write.changes
            self._new_branches += sum(isinstance(change, AddBranch) for change in changes)
        return refused

    def _stored(self, uid: UUID) -> _Stored:
        """Return the stored tree of a session."""
        if uid not in self._sessions:
            if any(pending.write.session == uid for pending in self._batch):
                self._flush()
            is_new = self._store.find_session(self._owner, uid) is None
            self._sessions[uid] = _Stored(uid, is_new=True) if is_new else self._load(uid)
            if len(self._sessions) > _MAX_CACHED_SESSIONS:
                self._sessions.popitem(last=False)
        self._sessions.move_to_end(uid)
        return self._sessions[uid]

    def _load(self, uid: UUID) -> _Stored:
        snapshot = self._store.load(self._owner, uid)
        stored = _Stored(uid, is_new=False)
        stored.messages.update(message.id for message in snapshot.messages)
        imported = {item.segment: item for item in snapshot.branches if _IMPORTED in item.metadata}
        stored.branch_names.update(branch.name for branch in snapshot.branches)
        bases = {segment.id: segment.base for segment in snapshot.segments}
        stored.branches.update((branch.segment, branch) for branch in snapshot.branches)
        for branch in snapshot.branches:
            base = bases[branch.segment]
            while base is not None and base not in stored.branches:
                stored.branches[base] = branch
                base = bases[base]
        digests: dict[UUID, list[UUID]] = {}  # of each segment, from its offset on
        offsets: dict[UUID, int] = {}
        for segment in needed_segments(snapshot):
            base = segment.base
            at = uid if base is None else digests[base][segment.offset - offsets[base]]
            chain = [at]
            for count, entry in enumerate(segment.entries, segment.offset + 1):
                at = uuid5(at, str(entry))
                chain.append(at)
                stored.places.setdefault(at, _Head(segment.id, count))
            digests[segment.id], offsets[segment.id] = chain, segment.offset
            if branch := imported.get(segment.id):
                stored.ends[at] = branch.id, segment.id, len(segment.entries)
        return stored


def _decode(entry: Entry) -> dict[str, Any]:
    """Return the object of an entry; raises ValidationError."""
    if entry.data is None:
        raise ValidationError("It is larger than a conversation may be; split it.")
    if not entry.is_complete:
        raise ValidationError("It is cut off: the file ends within it. Export it again.")
    value = loads(replace_unstorable(entry.data))
    if not isinstance(value, dict):
        raise ValidationError(f"A conversation is an object, got {short_repr(value)}.")
    return cast("dict[str, Any]", value)


def _new_session(
    uid: UUID, key: str, title: str | None, format: str, created: int
) -> SessionRecord:
    metadata = {_IMPORTED: format}
    if title is not None:
        text = validate_text(title, "title")
        metadata["title"] = text if len(text) <= MAX_NAME_BYTES else f"{text[:MAX_NAME_BYTES]}…"
    return SessionRecord(uid, key, "user", created, created, metadata)


def _identifier(id: str) -> str:
    """Return an id that is fit for the key of a session."""
    text = validate_text(id, "The conversation's id")
    if not text:
        raise ValidationError("It has no id and no messages.")
    if len(text) <= 100 and text.isascii() and text.isprintable() and " " not in text:
        return text
    return sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class _Item:
    """A message of the tree."""

    message: UUID
    content: MessageContent
    history: UUID
    """The digest of the history that ends with it."""
    before: UUID
    """The digest of the history before it."""


class _State(NamedTuple):
    """The state after a node."""

    history: UUID
    created: int
    items: tuple[_Item, ...] = ()
    system: tuple[str, ...] = ()
    """The system messages before the first other message."""


class _Plan:
    """The changes that a conversation makes to a stored session."""

    def __init__(self, chat: Chat, stored: _Stored, format: str) -> None:
        self._chat = chat
        self._stored = stored
        self._format = format
        self.size = 0
        """The bytes of its contents."""
        times = [node.created for node in chat.nodes.values() if node.created is not None]
        self.created = min(times, default=clock.now_us()) if chat.created is None else chat.created
        self._children = _children(chat.nodes)
        self._states: dict[str | None, _State] = {None: _State(stored.id, self.created)}
        for key in _parents_first(self._children, len(chat.nodes)):
            self._states[key] = self._state(key, chat.nodes[key])
        self.has_messages = any(state.items for state in self._states.values())
        self._new: dict[UUID, MessageRecord] = {}

    def _state(self, key: str, node: ChatNode) -> _State:
        above = self._states[self._parent(key)]
        history, system, items = above.history, list(above.system), list[_Item]()
        for index, content in enumerate(node.contents):
            if isinstance(content, SystemContent) and history == self._stored.id:
                system.append(content.rendered)
                continue
            encoded = dumps([content.kind, content.record()])
            self.size += len(encoded)
            digest = sha256(encoded).hexdigest()
            if self._chat.has_own_ids:
                message = uuid5(self._stored.id, f"{key}\0{index}\0{digest}")
            else:
                message = uuid5(history, digest)
            items.append(_Item(message, content, uuid5(history, str(message)), history))
            history = items[-1].history
        created = above.created if node.created is None else node.created
        return _State(history, created, tuple(items), tuple(system))

    def _parent(self, key: str) -> str | None:
        parent = self._chat.nodes[key].parent
        return parent if parent in self._chat.nodes else None

    def changes(self) -> list[Change]:
        """Return the changes; raises ValidationError."""
        changes: list[Change] = []
        for leaf in _leaves(self._chat, self._children):
            items = self._missing(leaf)
            if items:
                changes.append(self._grow(items, self._states[leaf].system))
        if self._new:
            changes.insert(0, AddMessages(tuple(self._new.values())))
        return changes

    def _missing(self, leaf: str) -> list[_Item]:
        """Return the messages at the end of a path that no stored history has."""
        items: list[_Item] = []
        key: str | None = leaf
        while key is not None:
            for item in reversed(self._states[key].items):
                if item.history in self._stored.places:
                    return items[::-1]
                items.append(item)
                self._add_message(key, item)
            key = self._parent(key)
        return items[::-1]

    def _add_message(self, key: str, item: _Item) -> None:
        if item.message in self._stored.messages:
            return
        message = Message(
            item.content,
            sender=_SENDERS.get(item.content.role),
            metadata=self._chat.nodes[key].metadata,
        )
        if named_blobs((message,)):
            raise ValidationError("A message names a blob, and only archives of Sennit have blobs.")
        body = dumps(message.to_record())
        self._new[item.message] = MessageRecord(item.message, self._states[key].created, body)
        self._stored.messages.add(item.message)

    def _grow(self, items: Sequence[_Item], system: tuple[str, ...]) -> Change:
        """Append to the imported branch that ends before the messages, or fork one there."""
        stored, before = self._stored, items[0].before
        entries = tuple(item.message for item in items)
        branch = stored.ends.pop(before, None)
        place = stored.places.get(before)
        start = 0 if place is None else place.length
        uid, segment, length = branch or (new_id(), new_id(), 0)
        stored.ends[items[-1].history] = uid, segment, length + len(entries)
        for count, item in enumerate(items, start + 1):
            stored.places[item.history] = _Head(segment, count)
        if branch is not None:
            return Append(uid, entries, (segment, length))
        record = BranchRecord(
            id=uid,
            name=self._new_name(),
            created=self.created,
            system=self._system(system),
            segment=segment,
            length=len(entries),
            resources=None,
            capabilities=None,
            metadata={_IMPORTED: self._format, **self._origin(place)},
        )
        stored.branches[segment] = record
        base = None if place is None else place.segment
        return AddBranch(record, SegmentRecord(segment, base, start, entries))

    def _origin(self, place: _Head | None) -> dict[str, Any]:
        """Return the metadata of a branch that was forked at this place."""
        if place is None:
            return {}
        source = self._stored.branches[place.segment]
        origin = {
            "branch_id": str(source.id),
            "branch_name": source.name,
            "created_at": clock.to_iso(source.created),
            "message_count": place.length + (source.system is not None),
        }
        return {"forked_from": origin}

    def _new_name(self) -> str:
        stored, name = self._stored, MAIN
        while name in stored.branch_names:
            stored.forks += 1
            name = f"{MAIN}_fork_{stored.forks}"
        stored.branch_names.add(name)
        return name

    def _system(self, texts: tuple[str, ...]) -> UUID | None:
        """Return the system message of a new branch, None if it has none."""
        if not texts:
            return None
        text = "\n\n".join(texts)
        uid = uuid5(self._stored.id, f"system\0{text}")
        if uid not in self._stored.messages:
            body = dumps(Message(SystemContent(text)).to_record())
            self._new[uid] = MessageRecord(uid, self.created, body)
            self._stored.messages.add(uid)
        return uid


def _children(nodes: Mapping[str, ChatNode]) -> dict[str | None, list[str]]:
    children: dict[str | None, list[str]] = {}
    for key, node in nodes.items():
        children.setdefault(node.parent if node.parent in nodes else None, []).append(key)
    return children


def _parents_first(children: Mapping[str | None, list[str]], count: int) -> list[str]:
    """Return the nodes, each after its parent; raises ValidationError for a cycle."""
    order = list(children.get(None, ()))
    for key in order:  # grows meanwhile
        order.extend(children.get(key, ()))
    if len(order) < count:
        raise ValidationError("Its messages name each other as parents in a cycle.")
    return order


def _leaves(chat: Chat, children: Mapping[str | None, list[str]]) -> list[str]:
    """Return the ends of all paths, first that of the path that the other program showed."""
    leaves = [key for key in chat.nodes if key not in children]
    tip = chat.tip
    while tip in children:
        tip = children[tip][-1]
    return sorted(leaves, key=lambda key: key != tip)
