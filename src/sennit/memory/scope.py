"""The scope of a client's memory: the owners whose files it may read and write.

The one place where addresses become owners and paths. A client is of one user, one agent and one
tenant. What its addresses lead to is the user's own: also the memories of the agent and the
resources, which no other user of the tenant reaches. The exception is `shared` below
`viking://agent` and `viking://resources`, the tenant's space: it is there for clients that were
opened with it, commits never write to it, and nothing is counted in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from sennit.errors import AccessError, ValidationError
from sennit.memory.extraction.values import Category
from sennit.memory.uri import SHARED, Scope, Uri
from sennit.messages.json_values import text
from sennit.stores.base import Store
from sennit.stores.records.files import FileRecord
from sennit.stores.records.sessions import Owner
from sennit.stores.session_ids import session_id

PROFILE = "memories/profile.md"
MEMORIES = "memories/"
MERGED_INTO = "merged_into"
_SCOPES: dict[str, Scope] = {"user": "user", "agent": "agent", "tenant": "resources"}


@dataclass(frozen=True)
class MemoryScope:
    """One user's share of a store, with one agent, and the tenant's space if that is open."""

    store: Store
    user: Owner
    """Whose sessions and memories these are."""
    agent_name: str
    shares: bool = False
    """Whether the tenant's shared space is reached too."""

    def of_agent(self, name: str) -> MemoryScope:
        """The same with another agent."""
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
        """The owners of what all users of the tenant share, by scope; none unless it is open."""
        if not self.shares:
            return {}
        return {
            "agent": Owner(self.user.tenant, "agent", self.agent_name),
            "resources": Owner(self.user.tenant, "tenant", self.user.tenant),
        }

    @property
    def owners(self) -> tuple[Owner, ...]:
        """All whose files can be read, the user first."""
        return self.user, self.agent, self.resources, *self.shared.values()

    @property
    def remembering(self) -> tuple[Owner, ...]:
        """Those of them who have memories."""
        return self.user, self.agent, *(one for one in self.shared.values() if one.kind == "agent")

    def locate(self, uri: Uri) -> tuple[Owner, str]:
        """The owner and path that an address stands for; raises ValidationError, AccessError."""
        if uri.scope == "session":
            raise ValidationError("viking://session is read-only; change the session instead.")
        if not uri.is_shared:
            own = {"user": self.user, "agent": self.agent, "resources": self.resources}
            return own[uri.scope], uri.path
        if uri.scope not in self.shared:
            raise AccessError(f"{str(uri)!r} is in the tenant's shared space, which is not open.")
        return self.shared[uri.scope], "/".join(uri.names[1:])

    def places(self, uri: Uri | None = None) -> tuple[tuple[Owner, str], ...]:
        """The owners and paths of all files below an address; below all of them without one."""
        if uri is None:
            return tuple((owner, "") for owner in self.owners)
        if uri.is_shared and not self.shares:
            return ()
        here = self.locate(uri)
        if uri.names or uri.scope not in self.shared:
            return (here,)
        return here, (self.shared[uri.scope], "")

    def owns(self, owner: Owner) -> bool:
        """Return whether an owner's files are the user's own, with this agent or another."""
        return owner.is_of(self.user)

    def uri(self, file: FileRecord) -> Uri:
        """The address of a file."""
        return self.uri_at(file.owner, file.path)

    def uri_at(self, owner: Owner, path: str) -> Uri:
        """The address of a path of an owner."""
        above = () if self.owns(owner) else (SHARED,)
        return Uri(_SCOPES[owner.kind], (*above, *path.removesuffix("/").split("/")))

    def session_id(self, name: str | UUID) -> UUID:
        """The id of the user's session with that key or id; raises ValidationError."""
        if isinstance(name, UUID):
            return name
        key = text(name, "session")
        try:
            return UUID(key)
        except ValueError:
            return session_id(self.user, key)

    def owner_of(self, category: Category) -> Owner:
        """Return the owner of memories of a category."""
        return self.user if category.owner == "user" else self.agent

    def named(self, said: str) -> FileRecord | None:
        """The file that a context names; any string may name one, also what is no address."""
        try:
            return self.find(Uri.parse(said))
        except ValidationError:
            return None

    def own_place(self, said: str) -> tuple[Owner, str] | None:
        """The owner and path that a context names among the user's own, also without a file."""
        try:
            uri = Uri.parse(said)
        except ValidationError:
            return None
        return None if uri.scope == "session" or uri.is_shared else self.locate(uri)

    def find(self, uri: Uri) -> FileRecord | None:
        """The file at an address."""
        if uri.scope == "session" or (uri.is_shared and not self.shares):
            return None
        owner, path = self.locate(uri)
        return self.store.find_file(owner, path) if path else None


def is_merged(file: FileRecord) -> bool:
    """Return whether a memory became part of another one; only its history is left."""
    return MERGED_INTO in file.latest.info


def folder_of(category: Category) -> str:
    """Return the folder of memories of a category; the profile is a file."""
    return PROFILE if category is Category.PROFILE else f"{MEMORIES}{category}/"


def category_at(owner: Owner, path: str) -> Category | None:
    """Return the category of a file by its path; None if it is not a memory."""
    for category in Category:
        folder = folder_of(category)
        here = path == folder or (folder.endswith("/") and path.startswith(folder))
        if here and not path.endswith("/") and owner.kind == category.owner:
            return category
    return None
