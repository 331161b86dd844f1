"""The scope of a client's memory: the owners whose files it may read and write.

The only place where URIs become owners and paths. A client belongs to one user, one agent and one
tenant. Its URIs lead to that user's own files: the agent's memories and the resources too are
separate for each user of the tenant. The exception is `shared` below `viking://agent` and
`viking://resources`, the tenant's shared space: only clients opened with it can reach it, commits
never write to it, and uses of its files are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from sennit.errors import AccessError, ValidationError
from sennit.memory.extraction.values import Category
from sennit.memory.uri import SCHEME, SHARED, Scope, Uri
from sennit.messages.json_values import validate_text
from sennit.messages.message import Message
from sennit.sessions.records import message_from_record
from sennit.stores.base import Store
from sennit.stores.records.commits import CommitRecord, commit_not_found
from sennit.stores.records.files import FileRecord, VersionRecord
from sennit.stores.records.sessions import Owner
from sennit.stores.session_ids import session_id

PROFILE = "memories/profile.md"
MEMORIES = "memories/"
MERGED_INTO = "merged_into"
SUPERSEDED = "superseded"
"""The kind of change that adds a statement older than the current one."""
_AGENT, _AGENT_MARK = f"{SCHEME}agent/", "#agent="
_SCOPES: dict[str, Scope] = {"user": "user", "agent": "agent", "tenant": "resources"}


@dataclass(frozen=True)
class MemoryScope:
    """The files of one user with one agent, and the tenant's shared space if it is open."""

    store: Store
    user: Owner
    """The owner of the sessions and memories."""
    agent_name: str
    shares: bool = False
    """Whether the tenant's shared space can be reached too."""

    def of_agent(self, name: str) -> MemoryScope:
        """Return the same scope with another agent."""
        return self if name == self.agent_name else replace(self, agent_name=name)

    @cached_property
    def agent(self) -> Owner:
        """The owner of the cases, patterns and skills of the user's agent."""
        return Owner(self.user.tenant, "agent", self.agent_name, self.user.name)

    @cached_property
    def resources(self) -> Owner:
        """The owner of the user's resources."""
        return Owner(self.user.tenant, "tenant", self.user.tenant, self.user.name)

    @cached_property
    def shared(self) -> dict[Scope, Owner]:
        """The owners of the tenant's shared files, by scope; empty unless that space is open."""
        if not self.shares:
            return {}
        return {
            "agent": Owner(self.user.tenant, "agent", self.agent_name),
            "resources": Owner(self.user.tenant, "tenant", self.user.tenant),
        }

    @property
    def owners(self) -> tuple[Owner, ...]:
        """All owners whose files can be read, the user first."""
        return self.user, self.agent, self.resources, *self.shared.values()

    @property
    def memory_owners(self) -> tuple[Owner, ...]:
        """The owners that have memories."""
        return (
            self.user,
            self.agent,
            *(owner for owner in self.shared.values() if owner.kind == "agent"),
        )

    def locate(self, uri: Uri) -> tuple[Owner, str]:
        """Return the owner and path of a URI; raises ValidationError, AccessError."""
        if uri.scope == "session":
            raise ValidationError("viking://session is read-only; change the session instead.")
        if not uri.is_shared:
            own = {"user": self.user, "agent": self.agent, "resources": self.resources}
            return own[uri.scope], uri.path
        if uri.scope not in self.shared:
            raise AccessError(f"{str(uri)!r} is in the tenant's shared space, which is not open.")
        return self.shared[uri.scope], "/".join(uri.names[1:])

    def locations(self, uri: Uri | None = None) -> tuple[tuple[Owner, str], ...]:
        """Return the owners and path prefixes of the files below a URI, or of all files."""
        if uri is None:
            return tuple((owner, "") for owner in self.owners)
        if uri.is_shared and not self.shares:
            return ()
        location = self.locate(uri)
        if uri.names or uri.scope not in self.shared:
            return (location,)
        return location, (self.shared[uri.scope], "")

    def owns(self, owner: Owner) -> bool:
        """Return whether an owner's files are the user's own, with this agent or another."""
        return owner.is_of(self.user)

    def uri(self, file: FileRecord) -> Uri:
        """Return the URI of a file."""
        return self.uri_at(file.owner, file.path)

    def uri_at(self, owner: Owner, path: str) -> Uri:
        """Return the URI of an owner's path."""
        prefix = () if self.owns(owner) else (SHARED,)
        return Uri(_SCOPES[owner.kind], (*prefix, *path.removesuffix("/").split("/")))

    def session_id(self, name: str | UUID) -> UUID:
        """Return the id of the user's session with a key or id; raises ValidationError."""
        if isinstance(name, UUID):
            return name
        key = validate_text(name, "session")
        try:
            return UUID(key)
        except ValueError:
            return session_id(self.user, key)

    def commit(self, commit: UUID) -> tuple[UUID, CommitRecord]:
        """Return a commit of the user and the id of its session; raises NotFoundError."""
        stored = self.store.find_commit(self.user, commit)
        if stored is None:
            raise commit_not_found(commit)
        return stored

    def messages(self, session: UUID, ids: Sequence[UUID]) -> list[Message]:
        """Return the messages of a session of the user that still exist."""
        return [*map(message_from_record, self.store.messages(self.user, session, ids))]

    def owner_of(self, category: Category) -> Owner:
        """Return the owner of memories of a category."""
        return self.user if category.owner == "user" else self.agent

    def reference(self, uri: str) -> str:
        """Return the name of a file in uses and commits, where the user's agents are told apart."""
        is_of_agent = uri.startswith(_AGENT) and not uri.startswith(f"{_AGENT}{SHARED}/")
        return f"{uri}{_AGENT_MARK}{self.agent_name}" if is_of_agent else uri

    def file_at(self, reference: str) -> FileRecord | None:
        """Return the file at a URI or reference; None if there is none, or for another string."""
        uri, _, agent = reference.partition(_AGENT_MARK)
        try:
            return self.of_agent(agent or self.agent_name).find(Uri.parse(uri))
        except ValidationError:
            return None

    def locate_own(self, reference: str) -> tuple[Owner, str] | None:
        """Return the owner and path of a URI or reference of the user's own; None for any other."""
        address, _, agent = reference.partition(_AGENT_MARK)
        try:
            uri = Uri.parse(address)
        except ValidationError:
            return None
        if uri.scope == "session" or uri.is_shared:
            return None
        return self.of_agent(agent or self.agent_name).locate(uri)

    def find(self, uri: Uri) -> FileRecord | None:
        """Return the file at a URI, if there is one."""
        if uri.scope == "session" or (uri.is_shared and not self.shares):
            return None
        owner, path = self.locate(uri)
        return self.store.find_file(owner, path) if path else None


def plain_uri(reference: str) -> str:
    """Return the URI of a file that is named in a use or commit."""
    return reference.partition(_AGENT_MARK)[0]


def is_merged(file: FileRecord) -> bool:
    """Return whether a memory was merged into another one, so that only its history is left."""
    return MERGED_INTO in file.latest.info


def is_superseded(version: VersionRecord) -> bool:
    """Return whether a version states what a newer one had replaced before it became known."""
    return version.info.get("did") == SUPERSEDED


def folder_of(category: Category) -> str:
    """Return the folder of a category's memories; for the profile, its file."""
    return PROFILE if category is Category.PROFILE else f"{MEMORIES}{category}/"


def category_at(owner: Owner, path: str) -> Category | None:
    """Return the category of a file by its path; None if it is not a memory."""
    for category in Category:
        folder = folder_of(category)
        is_inside = path == folder or (folder.endswith("/") and path.startswith(folder))
        if is_inside and not path.endswith("/") and owner.kind == category.owner:
            return category
    return None
