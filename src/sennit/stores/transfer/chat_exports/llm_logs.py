"""Conversations in `logs.db`, the SQLite database of the `llm` program.

Older versions have a row for each prompt with its response (`responses`), newer ones a tree of
messages (`messages`, `parts`) to which threads and turns point. Both are read; a conversation that
is in both is read from the tree. A thread that was forked off another becomes a branch of it.
Messages are identified by their text and history, so the same conversation has the same messages
before and after `llm` was updated.

The file is opened read-only and is untrusted: only tables are read, no views, and a value may have
the size of a message. One conversation at a time is in memory, and the ids of all threads.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sennit.errors import ArchiveError, ValidationError, short_repr
from sennit.messages.codec import MAX_BYTES, loads
from sennit.messages.content import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    MessageContent,
    SystemContent,
)
from sennit.messages.unset import Unset, or_unset
from sennit.stores.transfer.chat_exports.chat import (
    Chat,
    ChatNode,
    dict_of,
    dicts_of,
    file_note,
    iso_time,
    text_of,
)

MAGIC = b"SQLite format 3\0"
"""The first bytes of a SQLite file."""
_COLUMNS = {
    "responses": "id prompt system response reasoning model datetime_utc",
    "conversations": "name",
    "prompt_fragments": "fragment_id order",
    "prompt_attachments": "attachment_id order",
    "tool_calls": "name arguments tool_call_id",
    "tool_results": "name output tool_call_id exception",
    "fragments": "content",
    "attachments": "type path url",
    "threads": "id name tip_message_hash forked_from datetime_utc",
    "turns": "id parent_message_hash tip_message_hash model datetime_utc",
    "messages": "hash parent_hash role",
    "parts": "position type text payload",
    "part_attachments": "attachment_id order",
}
# The column by which rows are looked up. The file has no index on most of them.
_OWNERS = {
    "responses": "coalesce(conversation_id, id)",
    "conversations": "id",
    "prompt_fragments": "response_id",
    "prompt_attachments": "response_id",
    "tool_calls": "response_id",
    "tool_results": "response_id",
    "fragments": "id",
    "attachments": "id",
    "turns": "coalesce(thread_id, id)",
    "messages": "hash",
    "parts": "message_hash",
    "part_attachments": "part_id",
}
_Row = dict[str, Any]


@contextmanager
def reading_logs(path: Path) -> Generator[LogFile]:
    """Open a `logs.db`; raises ArchiveError if it cannot be read as one."""
    try:
        uri = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA temp_store = FILE")
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
            # Invalid UTF-8 becomes lone surrogates, which the message that holds them refuses.
            connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
            yield LogFile(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter of a damaged schema
        raise ArchiveError(
            f"{str(path)!r} could not be read as llm's logs.db ({error}); copy it again while llm "
            f"is not running."
        ) from error


class LogFile:
    """An open `logs.db`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Look at its tables; raises ArchiveError if there is no conversation table."""
        self._connection = connection
        self._columns = {table: self._existing_columns(table) for table in _COLUMNS}
        if "response" not in self._columns["responses"] and "id" not in self._columns["turns"]:
            raise ArchiveError(
                "This SQLite file is not llm's logs.db: it has no table 'responses' or 'turns'; "
                "`llm logs path` prints the path of logs.db."
            )
        for table, owner in _OWNERS.items():
            if self._columns[table]:
                self._create_index(table, owner)

    def _existing_columns(self, table: str) -> list[str]:
        query = "SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name = ?"
        if not self._connection.execute(query, (table,)).fetchone()[0]:
            return []
        rows = self._connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        existing = {name for (name,) in rows}
        return [name for name in _COLUMNS[table].split() if name in existing]

    def _create_index(self, table: str, owner: str) -> None:
        self._connection.execute(
            f"CREATE TEMP TABLE {table}_rows (owner, number, PRIMARY KEY (owner, number)) "
            f"WITHOUT ROWID"
        )
        self._connection.execute(
            f"INSERT OR IGNORE INTO temp.{table}_rows "
            f"SELECT {owner}, rowid FROM main.{table} WHERE {owner} IS NOT NULL"
        )

    def _rows(self, table: str, owner: Any) -> list[_Row]:
        """Return the rows of a table that belong to an owner, in the order of insertion."""
        columns = self._columns[table]
        if not columns:
            return []
        names = ", ".join(f't."{name}"' for name in columns)
        query = (
            f"SELECT {names} FROM temp.{table}_rows i JOIN main.{table} t ON t.rowid = i.number "
            f"WHERE i.owner = ? ORDER BY i.number"
        )
        try:
            found = self._connection.execute(query, (owner,))
        except (
            OverflowError,
            UnicodeEncodeError,
            sqlite3.InterfaceError,
            sqlite3.ProgrammingError,
        ):
            raise ValidationError(f"{short_repr(owner)} is not an id of {table}.") from None
        rows = [self._row(table, row) for row in found]
        return _sorted(rows, "order") if "order" in columns else rows

    def _row(self, table: str, values: tuple[Any, ...]) -> _Row:
        """Return a row by column, with None for columns that the table does not have."""
        known = dict(zip(self._columns[table], values, strict=True))
        return dict.fromkeys(_COLUMNS[table].split()) | known

    def entries(self) -> Iterator[tuple[str, Callable[[], Chat]]]:
        """Yield the conversations: their description, and a function that reads them."""
        families: dict[str, list[_Row]] = {}
        for root, thread in self._threads():
            families.setdefault(root, []).append(thread)
        threads = {thread["id"] for family in families.values() for thread in family}
        for root, family in families.items():
            yield f"thread {short_repr(root)}", partial(self._thread_chat, root, family)
        for name in self._owners("turns"):
            if name not in threads:
                yield f"turn {short_repr(name)}", partial(self._thread_chat, name, [])
        for name in self._owners("responses"):
            if name not in threads:
                yield f"conversation {short_repr(name)}", partial(self._old_chat, name)

    def count(self) -> int:
        """Return about how many conversations there are."""
        return sum(len([*self._owners(table)]) for table in ("turns", "responses"))

    def _owners(self, table: str) -> Iterator[str]:
        if self._columns[table]:
            query = f"SELECT DISTINCT owner FROM temp.{table}_rows ORDER BY owner"
            for (owner,) in self._connection.execute(query):
                yield str(owner)

    def _threads(self) -> Iterator[tuple[str, _Row]]:
        """Yield each thread with the id of the thread that its family began with."""
        columns = self._columns["threads"]
        if not columns:
            return
        names = ", ".join(f'"{name}"' for name in columns)
        found = self._connection.execute(f"SELECT {names} FROM main.threads ORDER BY id")
        rows = [self._row("threads", row) for row in found]
        threads = {str(row["id"]): row for row in rows}
        roots: dict[str, str] = {}
        for uid, thread in threads.items():
            path: dict[str, None] = {}
            at: str = uid
            above: Any = uid
            while above in threads and above not in roots and above not in path:
                at = above
                path[at] = None
                above = threads[at].get("forked_from")
            root = min(path) if above in path else roots.get(above, at)  # in a circle, any
            roots.update(dict.fromkeys(path, root))
            yield roots[uid], thread

    def _thread_chat(self, root: str, family: list[_Row]) -> Chat:
        """Read a thread and its forks; raises ValidationError."""
        nodes: dict[str, ChatNode] = {}
        turns = [turn for thread in family for turn in self._rows("turns", thread["id"])]
        turns = turns or self._rows("turns", root)
        for turn in turns:
            tip, parent = turn["tip_message_hash"], turn["parent_message_hash"]
            self._add_chain(nodes, tip, iso_time(turn.get("datetime_utc")), turn["model"], parent)
        for thread in family:
            self._add_chain(nodes, thread["tip_message_hash"], None, None, None)
        first = next((thread for thread in family if thread["id"] == root), None)
        tips = [item["tip_message_hash"] for item in ([first] if first else turns[-1:])]
        created = [iso_time(item.get("datetime_utc")) for item in (*family, *turns)]
        return Chat(
            id=root,
            nodes=nodes,
            has_own_ids=False,
            title=text_of(first["name"], "name") if first else None,
            created=min(filter(None, created), default=None),
            tip=tips[0] if tips else None,
        )

    def _add_chain(
        self,
        nodes: dict[str, ChatNode],
        tip: str | None,
        created: int | None,
        model: str | None,
        parent: str | None,
    ) -> None:
        """Add the messages up to `tip` that are missing; those after `parent` are an answer."""
        is_answer = tip != parent
        while tip is not None and tip not in nodes:
            found = self._rows("messages", tip)
            if not found:
                raise ValidationError(f"Message {short_repr(tip)} is missing.")
            contents = tuple(self._contents(found[0]["role"], self._parts(tip)))
            metadata = {"model": model} if is_answer and model else {}
            nodes[tip] = ChatNode(contents, found[0]["parent_hash"], created, metadata)
            tip = found[0]["parent_hash"]
            is_answer = is_answer and tip != parent

    def _parts(self, message: str) -> list[_Row]:
        parts: list[_Row] = []
        for row in _sorted(self._rows("parts", message), "position"):
            payload = dict_of(loads(row["payload"]), "payload") if row["payload"] else {}
            text = text_of(row["text"], "text") or payload.get("text")
            if references := payload.get("text_ref"):
                pieces = dicts_of(references, "text_ref")
                text = "".join(map(self._piece, pieces))
            parts.append({**payload, "type": row["type"], "text": text})
        return parts

    def _piece(self, piece: _Row) -> str:
        if "literal" in piece:
            return text_of(piece["literal"], "literal") or ""
        return "".join(
            text_of(row["content"], "content") or ""
            for row in self._rows("fragments", piece["fragment"])
        )

    def _contents(self, role: Any, parts: list[_Row]) -> Iterator[MessageContent]:
        """Convert the parts of a message of the newer tables."""
        texts = [text_of(part["text"], "text") for part in parts if part["type"] == "text"]
        files = [self._file(part) for part in parts if part["type"] == "attachment"]
        text = "\n\n".join(filter(None, [*texts, *files]))
        thoughts = [text_of(part["text"], "text") for part in parts if part["type"] == "reasoning"]
        if text or any(thoughts):
            yield _text_content(role, text, "\n\n".join(filter(None, thoughts)))
        for part in parts:
            if part["type"] == "tool_call":
                yield _call(part)
            elif part["type"] == "tool_result":
                yield _result(part)

    def _file(self, part: _Row) -> str:
        uid = dict_of(part.get("attachment"), "attachment").get("id")
        return next(map(_attachment, self._rows("attachments", uid)), file_note("attachment", None))

    def _old_chat(self, name: str) -> Chat:
        """Read a conversation of the older tables; raises ValidationError."""
        nodes: dict[str, ChatNode] = {}
        parent: str | None = None
        system: str | None = None
        created: list[int | None] = []
        for row in _sorted(self._rows("responses", name), "id"):
            created.append(iso_time(row.get("datetime_utc")))
            question = [*self._question(row)]
            instructions = text_of(row.get("system"), "system")
            if instructions is not None and instructions != system:
                system = instructions
                question.insert(0, SystemContent(instructions))
            metadata = {"model": row["model"]} if row.get("model") else {}
            nodes[f"{row['id']} prompt"] = ChatNode(tuple(question), parent, created[-1])
            parent = f"{row['id']} response"
            nodes[parent] = ChatNode(
                tuple(self._answer(row)), f"{row['id']} prompt", created[-1], metadata
            )
        titles = [text_of(row["name"], "name") for row in self._rows("conversations", name)]
        return Chat(
            id=name,
            nodes=nodes,
            has_own_ids=False,
            title=titles[0] if titles else None,
            created=min(filter(None, created), default=None),
            tip=parent,
        )

    def _question(self, row: _Row) -> Iterator[MessageContent]:
        yield from map(_result, self._rows("tool_results", row["id"]))
        fragments = [
            text_of(fragment["content"], "content")
            for used in self._rows("prompt_fragments", row["id"])
            for fragment in self._rows("fragments", used["fragment_id"])
        ]
        files = [
            _attachment(attachment)
            for used in self._rows("prompt_attachments", row["id"])
            for attachment in self._rows("attachments", used["attachment_id"])
        ]
        prompt = "\n".join(filter(None, [*fragments, text_of(row["prompt"], "prompt")]))
        if text := "\n\n".join(filter(None, [prompt, *files])):
            yield InstructionContent(instruction=text)

    def _answer(self, row: _Row) -> Iterator[MessageContent]:
        text = text_of(row["response"], "response") or ""
        thoughts = text_of(row.get("reasoning"), "reasoning") or ""
        if text or thoughts:
            yield _text_content("assistant", text, thoughts)
        yield from map(_call, self._rows("tool_calls", row["id"]))


def _sorted(rows: list[_Row], column: str) -> list[_Row]:
    """Sort rows by a column of numbers or texts; SQLite lets a column hold both."""

    def key(row: _Row) -> tuple[bool, float, str]:
        value = row[column] or 0
        return (False, value, "") if isinstance(value, (int, float)) else (True, 0, str(value))

    return sorted(rows, key=key)


def _text_content(role: Any, text: str, thoughts: str) -> MessageContent:
    match role:
        case "user" | "tool":
            return InstructionContent(instruction=text)
        case "system":
            return SystemContent(text)
        case "assistant":
            return AssistantResponseContent(or_unset(text or None), or_unset(thoughts or None))
        case _:
            raise ValidationError(f"A message has the unknown role {short_repr(role)}.")


def _call(row: _Row) -> MessageContent:
    arguments = row.get("arguments")
    if isinstance(arguments, str):
        arguments = loads(arguments or "{}")
    return ActionRequestContent.create(
        text_of(row.get("name"), "name") or "tool",
        dict_of(arguments, "arguments"),
        text_of(row.get("tool_call_id"), "tool_call_id"),
    )


def _result(row: _Row) -> MessageContent:
    call = or_unset(text_of(row.get("tool_call_id"), "tool_call_id"))
    if error := text_of(row.get("exception"), "exception"):
        return ActionResponseContent(call, Unset, error)
    return ActionResponseContent(call, text_of(row.get("output"), "output") or "")


def _attachment(row: _Row) -> str:
    name = row.get("path") or row.get("url") or row.get("type")
    return file_note("attachment", name)
