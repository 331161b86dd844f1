"""`viking://` URIs, normalised and confined.

    viking://session/{session}/…     a session, by its key or id
    viking://user/…                  the user's own memories and files
    viking://agent/…                 memories and skills of the user's agent
    viking://resources/…             the user's resources
    viking://agent/shared/…          shared by all users of the tenant, if that is open
    viking://resources/shared/…      likewise

A URI is confined to one of the four scopes, and each `Uri` was validated when it was made. Each has
one spelling: names in NFC, no empty ones, no slash at the end. Dangerous names are refused, not
cleaned: `..`, NUL and control characters, backslashes, percent-escapes (never unescaped here, so
only another parser could be their target), and names that some file systems do not allow, because
every file can be exported.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, get_args
from uuid import UUID

from sennit.errors import ValidationError, listed, short_repr
from sennit.messages.json_values import validate_text

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
_INVISIBLE = ("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True, order=True)
class Uri:
    """A location in the virtual file system; `Uri.parse` makes one, and `str` writes it."""

    scope: Scope
    names: tuple[str, ...] = ()

    @classmethod
    def parse(cls, uri: Any) -> Uri:
        """Parse a URI, or return one that is parsed; raises ValidationError."""
        if isinstance(uri, Uri):
            return uri
        raw = validate_text(uri, "A URI")
        if not raw.startswith(SCHEME):
            raise ValidationError(
                f"A URI begins with {SCHEME!r}, like 'viking://user/memories'; got "
                f"{short_repr(raw)}."
            )
        scope, *names = raw[len(SCHEME) :].removesuffix("/").split("/")
        if scope not in SCOPES:
            raise ValidationError(
                f"A URI has one of the scopes {listed(SCOPES)}, got {short_repr(scope)} in "
                f"{short_repr(raw)}."
            )
        if len(names) > _MAX_DEPTH:
            raise ValidationError(f"A URI has at most {_MAX_DEPTH} names, got {len(names)}.")
        return cls(scope, tuple(checked_name(name, raw) for name in names))

    def __truediv__(self, name: str) -> Uri:
        """Return the URI of a name below this one; raises ValidationError."""
        return Uri.parse(f"{self}/{checked_name(name, f'{self}/{name}')}")

    def __str__(self) -> str:
        return SCHEME + "/".join((self.scope, *self.names))

    @property
    def name(self) -> str:
        """The last name; at the top, the scope."""
        return self.names[-1] if self.names else self.scope

    @property
    def parent(self) -> Uri:
        """The folder above it; the top is its own parent."""
        return Uri(self.scope, self.names[:-1])

    @property
    def path(self) -> str:
        """The names, joined by slashes."""
        return "/".join(self.names)

    @property
    def is_shared(self) -> bool:
        """True if it is in the tenant's shared space."""
        return self.scope in _WITH_SHARED and self.names[:1] == (SHARED,)

    def is_within(self, folder: Uri) -> bool:
        """Return whether it is that folder or below it."""
        return self.scope == folder.scope and self.names[: len(folder.names)] == folder.names


def checked_name(name: str, where: str) -> str:
    """Return a name in NFC; raises ValidationError for an invalid one."""
    name = unicodedata.normalize("NFC", name)
    reason = _name_error(name)
    if reason is not None:
        raise ValidationError(
            f"{short_repr(name)} in {short_repr(where)} is not a valid file name: {reason}."
        )
    return name


def is_name(name: str) -> bool:
    """Return whether a string is a valid name as it is."""
    return unicodedata.normalize("NFC", name) == name and _name_error(name) is None


def session_name(key: str | None, uid: UUID) -> str:
    """Return the folder name of a session: its key, or its id where the key is not a valid name."""
    return key if key is not None and is_name(key) else str(uid)


def branch_folder(name: str) -> str:
    """Return the folder name of a branch: its name, or a digest of an invalid name."""
    return name if is_name(name) else f"branch-{blake2b(name.encode(), digest_size=8).hexdigest()}"


def archive_name(number: int) -> str:
    """Return the folder name of a commit's archive."""
    return f"archive_{number:03}"


def abstract_uri(session: UUID, number: int) -> str:
    """Return the URI of the abstract of an archive."""
    return f"viking://session/{session}/history/{archive_name(number)}/.abstract.md"


def _name_error(name: str) -> str | None:
    if not name:
        return "it is empty"
    if name.strip(".") == "":
        return "it consists of dots only"
    if len(name.encode()) > _MAX_NAME:
        return f"it is longer than {_MAX_NAME} bytes"
    if match := _FORBIDDEN.search(name):
        return f"it contains {match[0]!r}"
    if match := _ESCAPE.search(name):
        return f"it contains the escape {match[0]!r}, which is never unescaped"
    if any(unicodedata.category(char) in _INVISIBLE for char in name):
        return "it contains an invisible character"
    if name != name.strip() or name.endswith("."):
        return "it begins or ends with a space, or ends with a dot"
    if _RESERVED.match(name):
        return "it is a reserved device name"
    return None
