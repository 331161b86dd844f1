"""`find`: one query over memories and messages.

Messages are found whether they were archived or not, as what was extracted from them never says all
they said. The store gives hits by words (see `stores.hits`), `ranking` makes an order of them, and
only what is shown is read. An embedder adds what is near in meaning, also where no word is shared.
A client finds what is its user's, its agent's and its tenant's, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from uuid import UUID

from sennit import clock
from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.memory.commit.result import archive_name
from sennit.memory.extraction.values import MAX_ABSTRACT_CHARS, Category, abstract_of
from sennit.memory.history.history import EvidenceSource
from sennit.memory.retrieval.ranking import (
    MEMORY_BONUS,
    FusedScores,
    ScoreParts,
    group_bonus,
    recency_bonus,
    score_hits,
    usage_bonus,
)
from sennit.memory.scope import MemoryScope, is_merged
from sennit.memory.uri import SCHEME, Uri, branch_folder, session_name
from sennit.messages.json_values import text
from sennit.stores.records.files import FileRecord
from sennit.stores.records.search import FileHit, FileQuery, Hit, StoredMessage, TextQuery
from sennit.stores.records.sessions import Owner
from sennit.stores.search import tokenizer
from sennit.stores.segment_graph import MAIN

if TYPE_CHECKING:
    from sennit.memory.retrieval.vector_index import VectorIndex

MESSAGE = "message"
"""The category of messages."""
_CATEGORIES = frozenset({MESSAGE, *map(str, Category)})
_HITS = 120  # by words, and as many by meaning
_PER_RESULT = 10
_ARCHIVE = re.compile(r"archive_(\d+)")
_MORE = 10  # places read beside those that are shown
_FILES = 50
_NARROW = 10  # times as many are looked at where most will not be wanted
_Key: TypeAlias = tuple[Literal["message", "file"], int]


@dataclass(frozen=True, slots=True)
class Match:
    """Something that was found."""

    uri: str
    """The file it is, or in which the message stands."""
    category: str | None
    """One of the six of memories, "message", or None for any other file."""
    abstract: str
    """What it says, in at most 256 letters."""
    score: float
    """From 0 to 1, the best of a search near 1; comparable within one search only."""
    evidence: tuple[EvidenceSource, ...]
    """The messages it rests on; a message rests on itself."""
    created_at: datetime
    """When it was said; of a file, since when it holds."""
    speaker: str = ""
    """Of a message, the name of whoever said it, if known; the abstract begins with it."""
    explained: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the score is made of, if that was asked for; the score is their sum."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        plain = {
            "uri": self.uri,
            "category": self.category,
            "abstract": self.abstract,
            "score": self.score,
            "evidence": [
                {"session": str(one.session), "message": str(one.message)} for one in self.evidence
            ],
            "created_at": clock.to_iso(clock.from_datetime(self.created_at)),
        }
        return {**plain, "explained": dict(self.explained)} if self.explained else plain


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """Filters of a search; by default it has none."""

    session: UUID | None = None
    archive: int | None = None
    files: tuple[tuple[Owner, str], ...] = ()
    """Owners of files and how their paths begin."""
    messages: bool = True
    categories: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    at: int | None = None
    without: Container[UUID] = frozenset[UUID]()
    """Messages that are not wanted, such as those a prompt holds already."""


def where(
    realm: MemoryScope,
    target_uri: str | Uri | None = None,
    *,
    category: str | Iterable[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    at: datetime | None = None,
    without: Container[UUID] = frozenset[UUID](),
) -> SearchFilter:
    """Validate the filters of a search; raises ValidationError."""
    categories = _categories(category)
    moment = None if at is None else clock.from_datetime(at)
    ends = None if until is None else clock.from_datetime(until)
    if moment is not None:
        ends = moment + 1 if ends is None else min(ends, moment + 1)
    session, archive, files = _place(realm, None if target_uri is None else Uri.parse(target_uri))
    return SearchFilter(
        session=session,
        archive=archive,
        files=files if not categories or set(categories) - {MESSAGE} else (),
        messages=_has_messages(target_uri) and (not categories or MESSAGE in categories),
        categories=tuple(one for one in categories if one != MESSAGE),
        since=None if since is None else clock.from_datetime(since),
        until=ends,
        at=moment,
        without=without,
    )


def _categories(category: str | Iterable[str] | None) -> tuple[str, ...]:
    if category is None:
        return ()
    if not isinstance(category, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(f"category is a name or a list of names, got {shown(category)}.")
    given = [category] if isinstance(category, str) else list(category)
    unknown = [one for one in given if one not in list(_CATEGORIES)]
    if unknown:
        raise ValidationError(
            f"A category is one of {sorted(_CATEGORIES)}, got {shown(unknown[0])}."
        )
    return tuple(map(str, given))


def _has_messages(target: str | Uri | None) -> bool:
    return target is None or Uri.parse(target).scope == "session"


def _place(
    realm: MemoryScope, uri: Uri | None
) -> tuple[UUID | None, int | None, tuple[tuple[Owner, str], ...]]:
    """The session and archive, or the files, that an address stands for."""
    if uri is None or uri.scope != "session":
        return None, None, realm.locations(uri)
    if not uri.names:
        return None, None, ()
    found = [_ARCHIVE.fullmatch(name) for name in uri.names[1:]]
    archive = next((int(one[1]) for one in found if one is not None), None)
    return realm.session_id(uri.names[0]), archive, ()


def find(
    realm: MemoryScope,
    query: str,
    limits: SearchFilter,
    *,
    limit: int = 10,
    explain: bool = False,
    vectors: VectorIndex | None = None,
) -> list[Match]:
    """Return the best matches for a query, best first."""
    asked = _Search(realm, text(query, "the text to search for"), limits, _checked(limit))
    return asked.matches(vectors, explain=explain)


def _checked(limit: Any) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise InvalidTypeError(f"limit must be a number, got {shown(limit)}.")
    if limit < 1:
        raise ValidationError(f"limit must be at least 1, got {shown(limit)}.")
    return limit


class _Search:
    """One search under way."""

    def __init__(self, realm: MemoryScope, query: str, limits: SearchFilter, limit: int) -> None:
        self._realm, self._query, self._where, self._limit = realm, query, limits, limit
        self._words = tuple(tokenizer.asked(query))
        self._most = max(_HITS, _PER_RESULT * limit)
        self._now = clock.now_us()

    def matches(self, vectors: VectorIndex | None, *, explain: bool) -> list[Match]:
        """The best of all that speaks for something."""
        messages = score_hits(self._hits(), self._now)
        near = None if vectors is None else _Near(vectors, self._realm, self._query)
        cosines = {} if near is None else near.messages(messages, self._most, self._where)
        files = self._file_hits(() if near is None else near.files)
        found: dict[_Key, ScoreParts] = {
            ("message", place): parts for place, parts in messages.items()
        }
        found |= {("message", place): ScoreParts() for place in cosines.keys() - messages.keys()}
        found |= {("file", place): parts for place, parts in _file_parts(files, self._now).items()}
        meaning: dict[_Key, float] = {("message", place): one for place, one in cosines.items()}
        if near is not None:
            meaning |= {("file", place): one for place, one in near.file_cosines(files).items()}
        fused = FusedScores(found, meaning)
        return self._shown(fused, {hit.place: hit for hit in files}, explain=explain)

    def _hits(self) -> list[Hit]:
        limits = self._where
        if not limits.messages:
            return []
        most = self._most if limits.archive is None else self._most * _NARROW
        asked = TextQuery(self._words, limits.session, limits.since, limits.until, most)
        hits = self._realm.store.hits(self._realm.user, asked)
        if limits.archive is None:
            return hits
        return [hit for hit in hits if hit.group[1] == -limits.archive][: self._most]

    def _file_hits(self, places: tuple[int, ...]) -> list[FileHit]:
        found: list[FileHit] = []
        by_path: dict[str, list[Owner]] = {}
        for owner, under in self._where.files:
            by_path.setdefault(under, []).append(owner)
        for under, owners in by_path.items():
            asked = self._asked_files(tuple(owners), under, places)
            hits = self._realm.store.file_hits(asked)
            within = (hit for hit in hits if _is_within(hit.file.path, under))
            found += [hit for hit in within if not is_merged(hit.file)]
        return found

    def _asked_files(
        self, owners: tuple[Owner, ...], under: str, places: tuple[int, ...]
    ) -> FileQuery:
        limits = self._where
        return FileQuery(
            self._words,
            owners,
            under,
            limits.categories,
            limits.since,
            None if limits.at is not None else limits.until,
            limits.at,
            places=places,
        )

    def _shown(
        self, fused: FusedScores[_Key], files: Mapping[int, FileHit], *, explain: bool
    ) -> list[Match]:
        """The best, read as far as needed: some may be unwanted, or gone since."""
        chosen = self._chosen(fused)
        branches = self._branches([one for _, one in chosen if one is not None])
        return [
            self._file_match(files[key[1]].file, fused.parts(key), explain)
            if one is None
            else self._message_match(one, branches.get(one.place), fused.parts(key), explain)
            for key, one in chosen
        ]

    def _chosen(self, fused: FusedScores[_Key]) -> list[tuple[_Key, StoredMessage | None]]:
        """The best, each with its message if it is one."""
        found: list[tuple[_Key, StoredMessage | None]] = []
        size, seen = self._limit + _MORE, 0
        while some := fused.best(size, seen):
            seen += len(some)
            placed = self._placed([place for kind, place in some if kind == "message"])
            for key in some:
                kind, place = key
                if kind == "file":
                    found.append((key, None))
                elif place in placed and self._is_wanted(placed[place]):
                    found.append((key, placed[place]))
                if len(found) == self._limit:
                    return found
        return found

    def _branches(self, placed: Iterable[StoredMessage]) -> dict[int, str]:
        """The branches that messages stand on, where there are several."""
        sessions: dict[UUID, list[StoredMessage]] = {}
        for one in placed:
            if one.branched and one.archive is None:
                sessions.setdefault(one.session, []).append(one)
        found: dict[int, str] = {}
        for session, ones in sessions.items():
            names = self._realm.store.branches_holding(
                self._realm.user, session, [one.message.id for one in ones]
            )
            ids = {one.place: one.message.id for one in ones}
            found |= {place: names[uid] for place, uid in ids.items() if uid in names}
        return found

    def _placed(self, places: list[int]) -> dict[int, StoredMessage]:
        found = self._realm.store.at_places(self._realm.user, places) if places else []
        return {one.place: one for one in found}

    def _is_wanted(self, one: StoredMessage) -> bool:
        """Return whether a neighbour of a hit is within the limits too."""
        limits, message = self._where, one.message
        return (
            message.id not in limits.without
            and limits.session in (None, one.session)
            and (limits.since is None or message.created >= limits.since)
            and (limits.until is None or message.created < limits.until)
            and (limits.archive is None or one.archive == limits.archive)
            and bool(tokenizer.said(message.body))
        )

    def _message_match(
        self, one: StoredMessage, branch: str | None, parts: ScoreParts, explain: bool
    ) -> Match:
        body = one.message.body
        said, speaker = tokenizer.said(body), tokenizer.speaker(body)
        if len(said) > MAX_ABSTRACT_CHARS:
            said = tokenizer.snippet(said, list(self._words))
        return Match(
            uri=message_uri(one, branch),
            category=MESSAGE,
            abstract=abstract_of(f"{speaker}: {said}" if speaker else said),
            score=min(1.0, parts.total),
            evidence=(EvidenceSource(one.session, one.message.id),),
            created_at=clock.to_datetime(one.message.created),
            speaker=speaker,
            explained=parts.to_dict() if explain else {},
        )

    def _file_match(self, file: FileRecord, parts: ScoreParts, explain: bool) -> Match:
        version = file.latest
        abstract: str | None = version.info.get("abstract")
        return Match(
            uri=str(self._realm.uri(file)),
            category=file.category,
            abstract=abstract or abstract_of(version.body.decode(errors="replace")),
            score=min(1.0, parts.total),
            evidence=tuple(
                EvidenceSource(one.session, one.message)
                for one in version.evidence
                if one.owner == self._realm.user
            ),
            created_at=clock.to_datetime(version.valid_from),
            explained=parts.to_dict() if explain else {},
        )


class _Near:
    """Results of the vector search."""

    def __init__(self, vectors: VectorIndex, realm: MemoryScope, query: str) -> None:
        vectors.catch_up()
        self._vectors, self._realm = vectors, realm
        self._vector = vectors.query(query)
        self._files: dict[Owner, dict[int, float]] = {}

    def messages(self, also: Iterable[int], limit: int, limits: SearchFilter) -> dict[int, float]:
        """The cosines of messages, those in `also` among them."""
        if limits.session is not None or limits.since is not None or limits.until is not None:
            limit *= _NARROW
        found = self._vectors.nearest(self._realm.user, self._vector, limit, also)
        self._files[self._realm.user] = {at: one for at, one in found.items() if at < 0}
        return {at: one for at, one in found.items() if at > 0} if limits.messages else {}

    @property
    def files(self) -> tuple[int, ...]:
        """The places of the files that are nearest."""
        for owner in self._realm.owners:
            if owner not in self._files:
                self._files[owner] = self._vectors.nearest(owner, self._vector, _FILES)
        return tuple(place for found in self._files.values() for place in found)

    def file_cosines(self, hits: Iterable[FileHit]) -> dict[int, float]:
        """The cosines of files."""
        by_owner: dict[Owner, list[int]] = {}
        for hit in hits:
            by_owner.setdefault(hit.file.owner, []).append(hit.place)
        found: dict[int, float] = {}
        for owner, places in by_owner.items():
            near = self._vectors.nearest(owner, self._vector, 0, places)
            found |= {place: near[place] for place in places if place in near}
        return found


def _file_parts(hits: list[FileHit], now: int) -> dict[int, ScoreParts]:
    folders = group_bonus((_folder(hit.file), hit.score) for hit in hits)
    found: dict[int, ScoreParts] = {}
    for hit in hits:
        file, score = hit.file, hit.score
        found[hit.place] = ScoreParts(
            words=score,
            together=folders[_folder(file)],
            distilled=MEMORY_BONUS * score if file.category else 0.0,
            recent=recency_bonus(now - file.latest.valid_from) * score,
            used=usage_bonus(file.active) * score,
        )
    return found


def _is_within(path: str, under: str) -> bool:
    return not path.endswith("/") and (under in ("", path) or path.startswith(f"{under}/"))


def _folder(file: FileRecord) -> tuple[Owner, str]:
    return file.owner, file.path.rpartition("/")[0]


def message_uri(one: StoredMessage, branch: str | None) -> str:
    """The file in which a message stands: an archive, or what is current on a branch.

    Without the name of a branch it is that of the main one.
    """
    if one.archive is not None:
        inside = f"history/{archive_name(one.archive)}/"
    else:
        inside = "" if branch in (None, MAIN) else f"branches/{branch_folder(branch)}/"
    return f"{SCHEME}session/{session_name(one.key, one.session)}/{inside}messages.jsonl"
