"""The token file, which holds hashes only.

A token is `snt_`, a public id and a secret. The id selects the entry; the hash of the secret is
compared in constant time. The secret has 256 random bits, so a plain SHA-256 is enough. A file that
other users may access is rejected, since whoever can write it can add tokens. It is reloaded when
it changes; while it is missing or unreadable, no request is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex, token_urlsafe
from threading import Lock
from typing import Literal, TypeAlias, cast, get_args

import msgspec

try:
    import fcntl
except ImportError:  # not available on Windows
    fcntl = None

from sennit import clock, settings
from sennit.atomic_file import atomic_write
from sennit.errors import NotFoundError, StoreError, ValidationError, short_repr
from sennit.paths import make_private_folder
from sennit.stores.records.sessions import owner_name

Scope: TypeAlias = Literal["read", "write", "run", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""The scopes: read; write; run models and tools; forget, undo commits and share."""
DEFAULT_SCOPES: tuple[Scope, ...] = ("read", "write", "run")
"""The default scopes of a token."""

_PREFIX = "snt"


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of the file: the owner and the scopes of a token."""

    id: str
    """The public id, used in logs and by `sennit token revoke`."""
    hash: str
    """The SHA-256 of the secret."""
    tenant: str | None = None
    user: str | None = None
    agent: str | None = None
    scopes: frozenset[Scope] = frozenset(DEFAULT_SCOPES)
    note: str = ""
    created_at: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[Token]


def new_token(
    *,
    tenant: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    scopes: Iterable[str] = DEFAULT_SCOPES,
    note: str = "",
) -> tuple[str, Token]:
    """Return a new token, which is not stored, and its entry for the file.

    Raises ValidationError for invalid owner names or scopes.
    """
    for kind, name in (("tenant", tenant), ("user", user), ("agent", agent)):
        if name is not None:
            owner_name(name, kind)
    public_id, secret = token_hex(6), token_urlsafe(32)
    token = Token(
        id=public_id,
        hash=_hash(secret),
        tenant=tenant,
        user=user,
        agent=agent,
        scopes=checked_scopes(scopes),
        note=note,
        created_at=clock.to_iso(clock.now_us(), "seconds"),
    )
    return f"{_PREFIX}_{public_id}_{secret}", token


def checked_scopes(scopes: Iterable[str]) -> frozenset[Scope]:
    """Return the scopes as a set; raise ValidationError for an unknown one, or for none."""
    names = list(scopes)
    if wrong := [name for name in names if name not in SCOPES]:
        raise ValidationError(f"Unknown scope {wrong[0]!r}; expected: {', '.join(SCOPES)}.")
    if not names:
        raise ValidationError(f"A token needs at least one scope of: {', '.join(SCOPES)}.")
    return frozenset(cast("list[Scope]", names))


def default_token_file() -> Path:
    """Return the default path of the token file."""
    return settings.data_folder() / "tokens.json"


def read_tokens(path: Path) -> dict[str, Token]:
    """Return the tokens of a file by id; raise StoreError if unreadable or open to others."""
    try:
        with path.open("rb") as file:
            if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                raise StoreError(
                    f"{str(path)!r} is a token file, so only its owner may access it; run: chmod "
                    f"600 {path}"
                )
            data = file.read()
        return {token.id: token for token in msgspec.json.decode(data, type=_File).tokens}
    except (OSError, msgspec.DecodeError) as error:
        raise StoreError(f"The token file {str(path)!r} cannot be read: {error}") from error


def write_tokens(path: Path, tokens: Iterable[Token]) -> None:
    """Replace the file atomically by one with these tokens, readable only by its owner."""
    data = msgspec.json.encode(_File(list(tokens)), order="sorted")
    with atomic_write(path, replace=True) as part:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)


def add_token(path: Path, line: Token) -> None:
    """Add a token to the file; create the file if there is none."""
    make_private_folder(path.parent)  # which the lock needs
    with _exclusive(path):
        tokens = read_tokens(path) if path.exists() else {}
        write_tokens(path, [*tokens.values(), line])


def revoke_token(path: Path, public: str) -> Token:
    """Remove a token from the file, and return it; raise NotFoundError if it has none.

    With an empty file no request is allowed.
    """
    with _exclusive(path):
        tokens = read_tokens(path) if path.exists() else {}
        if (token := tokens.pop(public, None)) is None:
            raise NotFoundError(
                f"There is no token {short_repr(public)}; sennit token ls lists them."
            )
        write_tokens(path, tokens.values())
        return token


@contextmanager
def _exclusive(path: Path) -> Generator[None]:
    """Hold an exclusive lock on the folder, so that concurrent updates are not lost."""
    if fcntl is None or not path.parent.exists():
        yield
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


class TokenFile:
    """The tokens that are valid now, reloaded when the file changes."""

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else path.absolute()
        self._lock = Lock()
        self._stat: tuple[int, int, int] | None = None
        self._tokens: Mapping[str, Token] = {}
        self.version = 0
        """A counter that grows whenever the tokens may have changed."""
        self.requires_token = self._path is not None and self._path.exists()
        """Whether a token is required; once it is, it stays so while the server runs."""

    def refresh(self) -> None:
        """Reload the file if it has changed; raise StoreError if it cannot be read."""
        if self._path is None:
            return
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            if not self.requires_token:
                return
            with self._lock:
                self._replace({}, None)
            raise StoreError("The token file is missing, so no request is allowed.") from None
        key = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self._lock:
            if key != self._stat:
                self.requires_token = True
                self._replace({}, None)
                self._replace(read_tokens(self._path), key)

    def _replace(self, tokens: Mapping[str, Token], stat: tuple[int, int, int] | None) -> None:
        if self._tokens or tokens:
            self.version += 1
        self._tokens, self._stat = tokens, stat

    def has(self, token: Token) -> bool:
        """Return whether a token is still in the file, with the same secret, owner and scopes."""
        return self._tokens.get(token.id) == token

    def find(self, bearer: str) -> Token | None:
        """Return the entry of a bearer token; None if it is invalid or revoked."""
        prefix, _, rest = bearer.partition("_")
        public_id, _, secret = rest.partition("_")
        token = self._tokens.get(public_id) if prefix == _PREFIX else None
        digest = _hash(secret)
        expected = digest[::-1] if token is None else token.hash
        return token if compare_digest(digest.encode(), expected.encode()) else None


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
