"""The token file, which holds hashes only.

A token is `snt_`, a public id and a secret. The id finds the line; the secret's hash is compared in
constant time. The secret is random and long, so a plain hash is enough: there is nothing to guess.
Whoever can write the file can let people in, so one that others may touch is refused. It is read
again when it has changed, and a file that was there and cannot be read lets nobody in.
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
except ImportError:  # there is none on Windows
    fcntl = None

from sennit import clock, settings
from sennit.errors import NotFoundError, StoreError, ValidationError, shown
from sennit.paths import make_private_folder
from sennit.stores.records.sessions import owner_name

Scope: TypeAlias = Literal["read", "write", "run", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""What a token may do: read; write; run models and tools; erase for good, undo and share."""
USUAL_SCOPES: tuple[Scope, ...] = ("read", "write", "run")
"""What a token may do unless more was asked for."""

_PREFIX = "snt"


class Token(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of the file: who it is for, and what they may do."""

    id: str
    """Public; what logs and `sennit token revoke` name it by."""
    hash: str
    """Of the secret."""
    tenant: str | None = None
    user: str | None = None
    agent: str | None = None
    scopes: frozenset[Scope] = frozenset(USUAL_SCOPES)
    note: str = ""
    created_at: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    tokens: list[Token]


def new_token(
    *,
    tenant: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    scopes: Iterable[str] = USUAL_SCOPES,
    note: str = "",
) -> tuple[str, Token]:
    """A token to hand out, which nobody can read again, and its line for the file.

    Raises ValidationError for names that no owner can have.
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
    """The scopes; raises ValidationError for one there is not, or none at all."""
    names = list(scopes)
    if wrong := [name for name in names if name not in SCOPES]:
        raise ValidationError(f"There is no scope {wrong[0]!r}; there are {', '.join(SCOPES)}.")
    if not names:
        raise ValidationError(f"A token needs a scope; there are {', '.join(SCOPES)}.")
    return frozenset(cast("list[Scope]", names))


def default_file() -> Path:
    """The token file when nobody names one."""
    return settings.data_folder() / "tokens.json"


def read_tokens(path: Path) -> dict[str, Token]:
    """The lines of a file by id; raises StoreError if it is not sound, or others may touch it."""
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
    """Replace the file by one with these lines, whole or not at all; nobody else may read it."""
    make_private_folder(path.parent)
    temporary = path.with_name(f".{path.name}.{token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(_File(list(tokens)), order="sorted"))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def add_token(path: Path, line: Token) -> None:
    """Put a line into the file, which is made if there is none."""
    with _alone(path):
        tokens = read_tokens(path) if path.exists() else {}
        write_tokens(path, [*tokens.values(), line])


def revoke_token(path: Path, public: str) -> Token:
    """Take a line out of the file; raises NotFoundError. An empty file lets nobody in."""
    with _alone(path):
        tokens = read_tokens(path) if path.exists() else {}
        if (token := tokens.pop(public, None)) is None:
            raise NotFoundError(f"There is no token {shown(public)}; sennit token ls lists them.")
        write_tokens(path, tokens.values())
        return token


@contextmanager
def _alone(path: Path) -> Generator[None]:
    """Have all others wait who change the file: what one reads, nobody changes before it writes."""
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
    """The tokens that count now."""

    def __init__(self, path: Path | None) -> None:
        self._path = None if path is None else path.absolute()
        self._lock = Lock()
        self._seen: tuple[int, int, int] | None = None
        self._tokens: Mapping[str, Token] = {}
        self.version = 0
        """A number that grows whenever other tokens are valid than before."""
        self.guarded = self._path is not None and self._path.exists()
        """Whether a token is needed: once it is, it stays so while the server runs."""

    def refresh(self) -> None:
        """Read the file again if it has changed; raises StoreError if it cannot be read."""
        if self._path is None:
            return
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            if not self.guarded:
                return
            with self._lock:
                self._replace({}, None)
            raise StoreError("The token file is missing, so no request is allowed.") from None
        key = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        with self._lock:
            if key != self._seen:
                self.guarded = True
                self._replace({}, None)
                self._replace(read_tokens(self._path), key)

    def _replace(self, tokens: Mapping[str, Token], stat: tuple[int, int, int] | None) -> None:
        if self._tokens or tokens:
            self.version += 1
        self._tokens, self._seen = tokens, stat

    def has(self, token: Token) -> bool:
        """Return whether a token is still in the file, with the same secret, owner and scopes."""
        return self._tokens.get(token.id) == token

    def find(self, bearer: str) -> Token | None:
        """The line of a token; None if it is none, or was revoked."""
        prefix, _, rest = bearer.partition("_")
        public_id, _, secret = rest.partition("_")
        token = self._tokens.get(public_id) if prefix == _PREFIX else None
        digest = _hash(secret)
        expected = digest[::-1] if token is None else token.hash
        return token if compare_digest(digest.encode(), expected.encode()) else None


def _hash(secret: str) -> str:
    return sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
