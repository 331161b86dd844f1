"""MCP resources and prompts: sessions, memories and files to attach, and conversations to take up.

A session is `viking://session/NAME` and reads as a transcript of its main branch. All else has the
URI of its file. This module does not depend on the MCP protocol.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from sennit.api.client import Client
from sennit.api.session import Session
from sennit.errors import NotFoundError, ValidationError
from sennit.memory.uri import Uri, session_name
from sennit.messages.content import MessageRole
from sennit.messages.message import Message
from sennit.server.mcp.scope import MAX_ANSWER_CHARS, McpScope, branch_of, cut
from sennit.server.schemas import as_cursor, cursor
from sennit.sessions.client import SessionInfo

_SESSIONS_PER_PAGE = 100
_MAX_FILES = 500
_FOLDERS = (
    "viking://user/memories",
    "viking://agent/memories",
    "viking://agent/skills",
    "viking://resources",
)
_MAX_FOUND = 20
_MAX_COMPLETIONS = 50


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """A resource in a list."""

    uri: str
    title: str
    description: str | None
    media_type: str


@dataclass(frozen=True, slots=True)
class PromptEntry:
    """A prompt: its name, what it does, and its arguments with their descriptions."""

    name: str
    description: str
    required: tuple[tuple[str, str], ...]
    optional: tuple[tuple[str, str], ...] = ()


RECALL = PromptEntry(
    "recall",
    "Tell the assistant what is remembered, and was said, about a topic.",
    (("topic", "A question, or some words."),),
)
CONTINUE = PromptEntry(
    "continue",
    "Take up an earlier session: its last messages become those of this conversation.",
    (("session", "The session's key or id."),),
    (("branch", "A branch by name or id; by default main, or else the first."),),
)
PROMPTS = {entry.name: entry for entry in (RECALL, CONTINUE)}


async def list_resources(
    access: McpScope, after: str | None
) -> tuple[list[ResourceEntry], str | None]:
    """Return a page of resources, and the cursor of the next; files are on the first.

    Raises ValidationError for an invalid cursor.
    """
    if not access.allows("read"):
        return [], None
    before = None if after is None else cursor(after)
    infos = await access.client.asessions(before=before, limit=_SESSIONS_PER_PAGE)
    files = [] if after else await to_thread(_files, access.client)
    following = as_cursor(infos[-1]) if len(infos) == _SESSIONS_PER_PAGE else None
    return [*files, *map(_session_entry, infos)], following


def _files(client: Client) -> list[ResourceEntry]:
    entries: list[ResourceEntry] = []
    for folder in _FOLDERS:
        with suppress(NotFoundError):
            for entry in client.fs.walk(folder):
                name = entry.uri.rpartition("/")[2]
                if not entry.is_folder and not name.startswith("."):
                    entries.append(ResourceEntry(entry.uri, name, entry.abstract, "text/markdown"))
                if len(entries) == _MAX_FILES:
                    return entries
    return entries


def _session_entry(info: SessionInfo) -> ResourceEntry:
    name = session_name(info.key, info.id)
    return ResourceEntry(f"viking://session/{name}", info.title or name, None, "text/plain")


async def read_resource(access: McpScope, uri: str) -> tuple[str, str]:
    """Return the text of a resource and its media type; raises NotFoundError."""
    parsed = Uri.parse(uri)
    if parsed.scope == "session" and len(parsed.names) == 1:
        session = await access.client.asession(parsed.names[0], create=False)
        return await to_thread(_transcript, session), "text/plain"
    text = await access.client.fs.aread(uri)
    return cut(text, MAX_ANSWER_CHARS), "text/markdown"


def _transcript(session: Session) -> str:
    return "\n\n".join(f"{role}: {text}" for role, text in _last_messages(session, None))


def _last_messages(session: Session, name: str | None) -> list[tuple[str, str]]:
    """Return roles and texts of the last messages that fit, oldest first."""
    branch = branch_of(session, name)
    with session.lock:
        messages: Sequence[Message] = branch.messages
    chosen: list[tuple[str, str]] = []
    remaining = MAX_ANSWER_CHARS
    for message in reversed(messages):
        if message.role is MessageRole.SYSTEM or not message.text:
            continue
        remaining -= len(message.text)
        if remaining < 0:
            break
        chosen.append((message.role.value, message.text))
    if not chosen and messages:
        chosen.append((messages[-1].role.value, cut(messages[-1].text, MAX_ANSWER_CHARS)))
    return chosen[::-1]


async def prompt_messages(
    access: McpScope, name: str, arguments: dict[str, str]
) -> list[tuple[str, str]]:
    """Return a prompt as roles ("user", "assistant") and texts.

    Raises ValidationError for an unknown prompt or argument.
    """
    entry = PROMPTS.get(name)
    if entry is None:
        raise ValidationError(
            f"There is no prompt {name[:100]!r}; available: {', '.join(PROMPTS)}."
        )
    known = {argument for argument, _ in (*entry.required, *entry.optional)}
    missing = [argument for argument, _ in entry.required if not arguments.get(argument)]
    if missing:
        raise ValidationError(f"The prompt {name!r} needs the argument {missing[0]!r}.")
    if unknown := sorted(arguments.keys() - known):
        raise ValidationError(f"The prompt {name!r} has no argument {unknown[0][:100]!r}.")
    if entry is RECALL:
        return [("user", await _recalled(access.client, arguments["topic"]))]
    session = await access.client.asession(arguments["session"], create=False)
    messages = await to_thread(_last_messages, session, arguments.get("branch"))
    return list(_alternating(messages))


async def complete_argument(
    access: McpScope, argument: str, value: str, given: Mapping[str, str]
) -> list[str]:
    """Return the values that an argument of a prompt or resource may take, given the others."""
    if not access.allows("read"):
        return []
    if argument == "session":
        contains = value or None
        infos = await access.client.asessions(contains=contains, limit=_MAX_COMPLETIONS)
        return [session_name(info.key, info.id) for info in infos]
    if argument == "branch" and given.get("session"):
        with suppress(NotFoundError):
            session = await access.client.asession(given["session"], create=False)
            names = [branch.name for branch in session.branches if value in branch.name]
            return names[:_MAX_COMPLETIONS]
    return []


async def _recalled(client: Client, topic: str) -> str:
    matches = await client.afind(topic, limit=_MAX_FOUND)
    lines = [f"- {match.abstract} ({match.uri})" for match in matches]
    if not lines:
        return f"Nothing is remembered about: {topic}"
    return f"This is remembered about: {topic}\n\n" + "\n".join(lines)


def _alternating(messages: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the messages as those of a user and an assistant; tool results are the user's."""
    for role, text in messages:
        yield ("assistant" if role == "assistant" else "user"), text
