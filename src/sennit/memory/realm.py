"""What one client reaches: the store, and the owners whose files it may read and write.

The one place where addresses become owners and paths. A client is of one user, one agent and one
tenant; no address leads to anyone else's, whatever it says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from uuid import UUID

from sennit.errors import ValidationError
from sennit.memory.uri import Scope, Uri
from sennit.memory.values import Category
from sennit.stores.base import Store
from sennit.stores.files import FileRecord
from sennit.stores.keys import session_id
from sennit.stores.records import Owner

PROFILE = "memories/profile.md"
MEMORIES = "memories/"
MERGED_INTO = "merged_into"


@dataclass(frozen=True)
class Realm:
    """One user's, one agent's and one tenant's share of a store."""

    store: Store
    user: Owner
    """Whose sessions and memories these are."""
    agent_name: str

    def of_agent(self, name: str) -> Realm:
        """The same with another agent."""
        return self if name == self.agent_name else replace(self, agent_name=name)

    @cached_property
    def agent(self) -> Owner:
        """Whose cases, patterns and skills these are."""
        return Owner(self.user.tenant, "agent", self.agent_name)

    @cached_property
    def shared(self) -> Owner:
        """Whose resources these are."""
        return Owner(self.user.tenant, "tenant", self.user.tenant)

    def owner(self, scope: Scope) -> Owner:
        """Who owns the files of a scope; sessions have none."""
        owners = {"user": self.user, "agent": self.agent, "resources": self.shared}
        if scope not in owners:
            raise ValidationError(
                f"viking://{scope} shows what a session holds; change the session instead."
            )
        return owners[scope]

    def scope(self, owner: Owner) -> Scope:
        """In which scope an owner's files are."""
        scopes: dict[Owner, Scope] = {
            self.user: "user",
            self.agent: "agent",
            self.shared: "resources",
        }
        return scopes[owner]

    def reaches(self, owner: Owner) -> bool:
        """Whether an owner's files are this client's to read and write."""
        return owner in (self.user, self.agent, self.shared)

    def uri(self, file: FileRecord) -> Uri:
        """The address of a file."""
        return Uri(self.scope(file.owner), tuple(file.path.removesuffix("/").split("/")))

    def session_id(self, name: str | UUID) -> UUID:
        """The id of the user's session with that key or id."""
        try:
            return name if isinstance(name, UUID) else UUID(name)
        except ValueError:
            return session_id(self.user, str(name))

    def owner_of(self, category: Category) -> Owner:
        """Whose memories of a category are."""
        return self.user if category.owner == "user" else self.agent

    def named(self, said: str) -> FileRecord | None:
        """The file that a context names; any string may name one, also what is no address."""
        try:
            return self.find(Uri.parse(said))
        except ValidationError:
            return None

    def place(self, said: str) -> tuple[Owner, str] | None:
        """The owner and path that a context names, whether or not a file is there."""
        if (file := self.named(said)) is not None:
            return file.owner, file.path
        try:
            uri = Uri.parse(said)
        except ValidationError:
            return None
        return None if uri.scope == "session" else (self.owner(uri.scope), uri.path)

    def find(self, uri: Uri) -> FileRecord | None:
        """The file at an address."""
        if uri.scope == "session" or not uri.names:
            return None
        return self.store.find_file(self.owner(uri.scope), uri.path)


def is_merged(file: FileRecord) -> bool:
    """Whether a memory became part of another one; only its history is left."""
    return MERGED_INTO in file.latest.info


def folder_of(category: Category) -> str:
    """Where memories of a category stand; the profile is a file."""
    return PROFILE if category is Category.PROFILE else f"{MEMORIES}{category}/"


def category_at(owner: Owner, path: str) -> Category | None:
    """What category a file has by its place; None if it is no memory."""
    for category in Category:
        folder = folder_of(category)
        here = path == folder or (folder.endswith("/") and path.startswith(folder))
        if here and not path.endswith("/") and owner.kind == category.owner:
            return category
    return None
