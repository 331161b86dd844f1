"""`viking://` URIs, normalised and confined.

    viking://session/{session}/…     a session, by its key or id
    viking://user/…                  what belongs to the user
    viking://agent/…                 what the user's agent has learnt
    viking://resources/…             the user's resources
    viking://agent/shared/…          what all users of the tenant share, if that is open
    viking://resources/shared/…      likewise

An address names a place inside one of the four and can name nothing else: whoever holds a Uri holds
one that was checked. There is one way to write each: names in NFC, no empty ones, no slash at the
end. Names that mean something elsewhere are refused, not cleaned: `..`, NUL and control characters,
backslashes, percent-escapes (nothing here is ever unescaped, so they could only be meant for
someone else), and what some file system would not take, as every file can be exported.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, get_args
from uuid import UUID

from sennit.errors import ValidationError, shown
from sennit.messages.json_values import text

Scope: TypeAlias = Literal["session", "user", "agent", "resources"]

SCHEME = "viking://"
SHARED = "shared"
"""The folder of the tenant's space, at the top of the scopes that have one."""
SCOPES: tuple[Scope, ...] = get_args(Scope)
_WITH_SHARED: tuple[Scope, ...] = ("agent", "resources")
_MAX_DEPTH = 32
_MAX_NAME = 200
_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*#/\\]')
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_UNSEEN = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Uri:
    """A place in the virtual file system; `Uri.parse` makes one, and `str` writes it."""

    scope: Scope
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, uri: Any) -> Uri:
        """The address in a string, or an address as it is; raises ValidationError."""
        if isinstance(uri, Uri):
            return uri
        said = text(uri, "A URI")
        if not said.startswith(SCHEME):
            raise ValidationError(
                f"A URI begins with {SCHEME!r}, like 'viking://user/memories'; got {shown(said)}."
            )
        scope, *names = said[len(SCHEME) :].removesuffix("/").split("/")
        if scope not in SCOPES:
            raise ValidationError(
                f"A URI has one of the scopes {list(SCOPES)}, got {shown(scope)} in {shown(said)}."
            )
        if len(names) > _MAX_DEPTH:
            raise ValidationError(f"A URI has at most {_MAX_DEPTH} names, got {len(names)}.")
        return cls(scope, tuple(checked_name(name, said) for name in names))

    def __truediv__(self, name: str) -> Uri:
        """The place of that name below; raises ValidationError."""
        return Uri.parse(f"{self}/{checked_name(name, f'{self}/{name}')}")

    def __str__(self) -> str:
        return SCHEME + "/".join((self.scope, *self.names))

    @property
    def name(self) -> str:
        """Its last name; the scope's at the top."""
        return self.names[-1] if self.names else self.scope

    @property
    def parent(self) -> Uri:
        """The folder it stands in; the top is its own."""
        return Uri(self.scope, self.names[:-1])

    @property
    def path(self) -> str:
        """Its names, joined."""
        return "/".join(self.names)

    @property
    def is_shared(self) -> bool:
        """True if it is in the tenant's shared space."""
        return self.scope in _WITH_SHARED and self.names[:1] == (SHARED,)

    def is_within(self, folder: Uri) -> bool:
        """Return whether it is that folder or stands below it."""
        return self.scope == folder.scope and self.names[: len(folder.names)] == folder.names


def checked_name(name: str, where: str) -> str:
    """A name as it is kept; raises ValidationError for one that is none."""
    name = unicodedata.normalize("NFC", name)
    wrong = _fault(name)
    if wrong is not None:
        raise ValidationError(f"{shown(name)} in {shown(where)} is not a valid file name: {wrong}.")
    return name


def is_name(name: str) -> bool:
    """Return whether a string, as it is, can stand in an address."""
    return unicodedata.normalize("NFC", name) == name and _fault(name) is None


def session_name(key: str | None, uid: UUID) -> str:
    """Return the folder name of a session: its key, or its id where the key is no valid name."""
    return key if key is not None and is_name(key) else str(uid)


def branch_folder(name: str) -> str:
    """Return the folder name of a branch: its name, or a distinguishing form of it.

    A name that can stand in no address is replaced by the digest of it.
    """
    return name if is_name(name) else f"branch-{blake2b(name.encode(), digest_size=8).hexdigest()}"


def _fault(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name.strip(".") == "":
        return "dots alone lead elsewhere"
    if len(name.encode()) > _MAX_NAME:
        return f"it is longer than {_MAX_NAME} bytes"
    if found := _FORBIDDEN.search(name):
        return f"it holds {found[0]!r}"
    if found := _ESCAPE.search(name):
        return f"it holds the escape {found[0]!r}, and nothing is unescaped here"
    if any(unicodedata.category(sign) in _UNSEEN for sign in name):
        return "it holds a sign that cannot be seen"
    if name != name.strip() or name.endswith("."):
        return "it begins or ends with a space, or ends with a dot"
    if _RESERVED.match(name):
        return "some systems keep that name for a device"
    return None
