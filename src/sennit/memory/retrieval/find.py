"""`find`: one query over memories and messages.

Messages are searched whether they are archived or not, because memories never contain all that was
said. The store returns full-text hits (see `stores.records.search`), `ranking` orders them, and
only the messages of the best are read. An embedder adds what is near in meaning without a word in
common. A client finds only what belongs to its user, its agent and its tenant.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from sennit import clock
from sennit.errors import InvalidTypeError, ValidationError, did_you_mean, listed, short_repr
from sennit.memory.extraction.values import MAX_ABSTRACT_CHARS, Category, abstract_of
from sennit.memory.files.resources import validate_metadata
from sennit.memory.history.history import EvidenceSource
from sennit.memory.retrieval.ranking import (
    MAX_SHARING_HITS,
    MEMORY_BONUS,
    SHORT_CHARS,
    FusedScores,
    ScoreParts,
    Speaker,
    group_bonus,
    meaning_weights,
    recency_bonus,
    score_hits,
    usage_bonus,
)
from sennit.memory.scope import MemoryScope, is_merged
from sennit.memory.uri import SCHEME, Uri, archive_name, branch_folder, session_name
from sennit.messages.json_values import validate_text
from sennit.numbers import count
from sennit.stores.records.files import FileRecord
from sennit.stores.records.search import FileHit, FileQuery, Hit, StoredMessage, TextQuery
from sennit.stores.records.sessions import Owner
from sennit.stores.search import tokenizer
from sennit.stores.segment_graph import MAIN

if TYPE_CHECKING:
    from sennit.memory.retrieval.embedders import VectorIndex

MESSAGE = "message"
"""The category of messages."""
_CATEGORIES = frozenset({MESSAGE, *map(str, Category)})
_MIN_HITS = 120  # full-text hits, and as many nearest vectors
_HITS_PER_RESULT = 4
_ARCHIVE_NAME = re.compile(r"archive_(\d+)")
_MIN_READ = 60  # hits whose messages are read
_READ_PER_RESULT = 2
_MIN_SESSIONS = 3  # among the results, while others have any
MIN_KNOWN_WORDS = 0.2
"""The share of the words of a question that must occur somewhere; else nothing is about it."""
_MIN_KNOWN_IF_FAR = 2 / 3  # of the words of a question that is near to nothing in meaning
_MAX_NEAR_FILES = 50
_SKILLS = f"{SCHEME}agent/skills/"
_NARROW_FACTOR = 10  # how many more hits to request if most will be filtered out


@dataclass(frozen=True, slots=True)
class Match:
    """A search result."""

    uri: str
    """The URI of the file, or of the file that contains the message."""
    category: str | None
    """One of the six memory categories, "message", or None for any other file."""
    abstract: str
    """The text in at most 256 characters."""
    score: float
    """From 0 to 1, the best of a search near 1; comparable within one search only."""
    evidence: tuple[EvidenceSource, ...]
    """The messages it rests on; for a message, the message itself."""
    created_at: datetime
    """When it was said; for a file, since when it holds."""
    valid_to: datetime | None = None
    """For a memory, until when it held; None if it still does."""
    speaker: str = ""
    """For a message, the name of the speaker, if known; the abstract begins with it."""
    explained: Mapping[str, float] = field(default_factory=dict[str, float])
    """The parts of the score, if requested; the score is their sum."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The labels that a resource was added with."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        plain: dict[str, Any] = {
            "uri": self.uri,
            "category": self.category,
            "abstract": self.abstract,
            "score": self.score,
            "evidence": [source.to_dict() for source in self.evidence],
            "created_at": clock.to_iso(clock.from_datetime(self.created_at)),
        }
        if self.metadata:
            plain["metadata"] = dict(self.metadata)
        return {**plain, "explained": dict(self.explained)} if self.explained else plain


class Matches(list[Match]):
    """The results of a search, the best first, and in groups."""

    @property
    def messages(self) -> list[Match]:
        """The messages among them."""
        return [match for match in self if match.category == MESSAGE]

    @property
    def memories(self) -> list[Match]:
        """The memories among them."""
        return [match for match in self if match.category not in (None, MESSAGE)]

    @property
    def skills(self) -> list[Match]:
        """The files of skills among them."""
        return [match for match in self if match.uri.startswith(_SKILLS)]

    @property
    def resources(self) -> list[Match]:
        """The other files among them."""
        return [
            match for match in self if match.category is None and not match.uri.startswith(_SKILLS)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchFilter:
    """Filters of a search; by default it has none."""

    session: UUID | None = None
    archive: int | None = None
    files: tuple[tuple[Owner, str], ...] = ()
    """The owners of files and the prefixes of their paths."""
    messages: bool = True
    categories: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    at: int | None = None
    without: Container[UUID] = frozenset[UUID]()
    """Messages to exclude, such as those that a prompt already contains."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Labels that a resource must have."""


def where(
    scope: MemoryScope,
    target_uri: str | Uri | None = None,
    *,
    category: str | Iterable[str] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    at: datetime | None = None,
    without: Container[UUID] = frozenset[UUID](),
    metadata: Mapping[str, Any] | None = None,
) -> SearchFilter:
    """Return the filters of a search; raises ValidationError."""
    labels = validate_metadata(metadata)
    categories = _validate_categories(category)
    moment = None if at is None else clock.from_datetime(at)
    ends = None if until is None else clock.from_datetime(until)
    if moment is not None:
        ends = moment + 1 if ends is None else min(ends, moment + 1)
    session, archive, files = _resolve_target(
        scope, None if target_uri is None else Uri.parse(target_uri)
    )
    return SearchFilter(
        session=session,
        archive=archive,
        files=files if not categories or set(categories) - {MESSAGE} else (),
        messages=(
            not labels and _has_messages(target_uri) and (not categories or MESSAGE in categories)
        ),
        categories=tuple(name for name in categories if name != MESSAGE),
        since=None if since is None else clock.from_datetime(since),
        until=ends,
        at=moment,
        without=without,
        metadata=labels,
    )


def _validate_categories(category: str | Iterable[str] | None) -> tuple[str, ...]:
    if category is None:
        return ()
    if not isinstance(category, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidTypeError(
            f"category must be a name or a list of names, got {short_repr(category)}."
        )
    names = [category] if isinstance(category, str) else list(category)
    unknown = [name for name in names if name not in list(_CATEGORIES)]
    if unknown:
        raise ValidationError(
            f"A category is one of {listed(_CATEGORIES)}, got {short_repr(unknown[0])}."
            f"{did_you_mean(unknown[0], _CATEGORIES)}"
        )
    return tuple(map(str, names))


def _has_messages(target: str | Uri | None) -> bool:
    return target is None or Uri.parse(target).scope == "session"


def _resolve_target(
    scope: MemoryScope, uri: Uri | None
) -> tuple[UUID | None, int | None, tuple[tuple[Owner, str], ...]]:
    """Return the session and archive, or the files, that a URI stands for."""
    if uri is None or uri.scope != "session":
        return None, None, scope.locations(uri)
    if not uri.names:
        return None, None, ()
    matches = [_ARCHIVE_NAME.fullmatch(name) for name in uri.names[1:]]
    archive = next((int(match[1]) for match in matches if match is not None), None)
    return scope.session_id(uri.names[0]), archive, ()


def find(
    scope: MemoryScope,
    query: str,
    filters: SearchFilter,
    *,
    limit: int = 10,
    explain: bool = False,
    vectors: VectorIndex | None = None,
    score_threshold: float = 0.0,
    min_known: float = MIN_KNOWN_WORDS,
) -> Matches:
    """Return the best matches for a query, best first, with at least that score.

    There are none if less than `min_known` of its words occur anywhere and, with vectors, nothing
    is near to it in meaning.
    """
    count(limit, "limit")
    text = validate_text(query, "the text to search for")
    search = _Search(scope, text, filters, limit, min_known)
    matches = search.matches(vectors, explain=explain)
    return Matches(match for match in matches if match.score >= score_threshold)


class _Search:
    """One search."""

    def __init__(
        self, scope: MemoryScope, query: str, filters: SearchFilter, limit: int, min_known: float
    ) -> None:
        self._scope, self._query, self._filters, self._limit = scope, query, filters, limit
        self._min_known = min_known
        self._words = tuple(tokenizer.query_words(query))
        self._max_hits = max(_MIN_HITS, _HITS_PER_RESULT * limit)
        self._now = clock.now_us()
        self._messages: dict[int, StoredMessage] = {}
        self._utterances: dict[int, tokenizer.SpokenText] = {}

    def matches(self, vectors: VectorIndex | None, *, explain: bool) -> list[Match]:
        """Return the best matches."""
        hits = self._message_hits()
        self._read_best(hits)
        cosines: dict[int, float] = {}
        near: dict[int, float] = {}
        near_files: tuple[int, ...] = ()
        vector = None if vectors is None else vectors.query(self._query)
        if vectors is not None and vector is not None:
            near = self._nearest(vectors, vector, self._messages)
            near_files = tuple(place for place in near if place < 0)
            if self._filters.messages:
                self._read(place for place in near if place > 0)
                cosines = {place: near[place] for place in near if place in self._messages}
        speakers = {place: self._speaker(said) for place, said in self._utterances.items()}
        scores = score_hits(hits, self._now, speakers, self._query)
        scores |= {place: ScoreParts() for place in cosines if place not in scores}
        files = {hit.place: hit for hit in self._file_hits(near_files)}
        if vectors is None or vector is None:
            is_known = self._known_share(files.values()) >= self._min_known
        else:
            is_near = max(near.values(), default=-1.0) >= vectors.min_cosine
            is_known = is_near or self._known_share(files.values()) >= _MIN_KNOWN_IF_FAR
        if not is_known:
            return []
        scores |= _score_files(files.values(), self._now)
        if vectors is not None and vector is not None:
            by_owner: dict[Owner, list[int]] = {}
            for place, hit in files.items():
                by_owner.setdefault(hit.file.owner, []).append(place)
            for owner, places in by_owner.items():
                cosines |= vectors.nearest(owner, vector, 0, places)
        fused = FusedScores(scores, cosines, meaning_weights(speakers, self._query))
        chosen = self._select(fused)
        branches = self._branches([stored for _, stored in chosen if stored is not None])
        return [
            self._file_match(files[place].file, fused.parts(place), explain)
            if stored is None
            else self._message_match(stored, branches.get(place), fused.parts(place), explain)
            for place, stored in chosen
        ]

    def _read_best(self, hits: Sequence[Hit]) -> None:
        """Read the messages of the best hits, and the neighbours of the first of them."""
        enough = max(_MIN_READ, _READ_PER_RESULT * self._limit)
        for start in range(0, len(hits), enough):
            self._read(hit.place for hit in hits[start : start + enough])
            if sum(map(self._is_wanted, self._messages.values())) >= enough // 2:
                break
        sharing = [hit for hit in hits if hit.place in self._messages][:MAX_SHARING_HITS]
        self._read(place for hit in sharing for place in (*hit.before, *hit.after))

    def _read(self, places: Iterable[int]) -> None:
        """Read the messages at places that were not read yet."""
        missing = list(dict.fromkeys(place for place in places if place not in self._messages))
        if missing:
            for stored in self._scope.store.at_places(self._scope.user, missing):
                self._messages[stored.place] = stored
                self._utterances[stored.place] = tokenizer.utterance(stored.message.body)

    def _speaker(self, said: tokenizer.SpokenText) -> Speaker:
        """Return the speaker of a message; the user and the agent of the client have no names."""
        own = (self._scope.user.name, self._scope.agent_name)
        name = "" if said.speaker in own else said.speaker
        return Speaker(name, said.is_from_user or bool(name), len(said.text) <= SHORT_CHARS)

    def _known_share(self, files: Iterable[FileHit]) -> float:
        """Return the share of the words of the question that occur in what was found."""
        texts = [f"{said.speaker} {said.text}" for said in self._utterances.values()]
        texts += [hit.file.latest.body.decode(errors="replace") for hit in files]
        return len(tokenizer.known_words(self._words, texts)) / max(1, len(self._words))

    def _nearest(
        self, vectors: VectorIndex, vector: Sequence[float], also: Iterable[int]
    ) -> dict[int, float]:
        """Return the cosines of the nearest messages and files, and of the messages in `also`."""
        user, filters, limit = self._scope.user, self._filters, self._max_hits
        if filters.session is not None or filters.since is not None or filters.until is not None:
            limit *= _NARROW_FACTOR
        near = vectors.nearest(user, vector, limit, also)
        for owner in self._scope.owners[1:]:
            near |= vectors.nearest(owner, vector, _MAX_NEAR_FILES)
        return near

    def _message_hits(self) -> list[Hit]:
        filters = self._filters
        if not filters.messages:
            return []
        max_hits = self._max_hits if filters.archive is None else self._max_hits * _NARROW_FACTOR
        query = TextQuery(self._words, filters.session, filters.since, filters.until, max_hits)
        hits = self._scope.store.hits(self._scope.user, query)
        if filters.archive is None:
            return hits
        return [hit for hit in hits if hit.group[1] == -filters.archive][: self._max_hits]

    def _file_hits(self, places: tuple[int, ...]) -> list[FileHit]:
        hits: list[FileHit] = []
        by_path: dict[str, list[Owner]] = {}
        filters = self._filters
        for owner, under in filters.files:
            by_path.setdefault(under, []).append(owner)
        for under, owners in by_path.items():
            query = FileQuery(
                self._words,
                tuple(owners),
                under,
                filters.categories,
                filters.since,
                None if filters.at is not None else filters.until,
                filters.at,
                places=places,
            )
            owner_hits = self._scope.store.file_hits(query)
            within = (
                hit
                for hit in owner_hits
                if _is_within(hit.file.path, under)
                and filters.metadata.items() <= _metadata_of(hit.file).items()
            )
            hits += [hit for hit in within if not is_merged(hit.file)]
        if filters.at is None:
            return hits
        # Of versions that held at the same time, the last one written corrects the others.
        last = {hit.file.id: 0 for hit in hits}
        for hit in hits:
            last[hit.file.id] = max(last[hit.file.id], hit.file.latest.number)
        return [hit for hit in hits if hit.file.latest.number == last[hit.file.id]]

    def _select(self, fused: FusedScores) -> list[tuple[int, StoredMessage | None]]:
        """Return the best places, each with its message unless it is a file.

        Messages that are filtered out or were erased are left out. Of one session there are more
        than its share only where other sessions leave places free.
        """
        is_narrow = self._filters.session is not None
        share = self._limit if is_narrow else max(1, self._limit // _MIN_SESSIONS)
        by_session: Counter[UUID] = Counter()
        rest: list[int] = []
        chosen: set[int] = set()
        ranked = fused.ranked()
        for place in ranked:
            if len(chosen) == self._limit:
                break
            if place > 0:
                stored = self._messages.get(place)
                if stored is None or not self._is_wanted(stored):
                    continue
                by_session[stored.session] += 1
                if by_session[stored.session] > share:
                    rest.append(place)
                    continue
            chosen.add(place)
        chosen.update(rest[: self._limit - len(chosen)])
        return [(place, self._messages.get(place)) for place in ranked if place in chosen]

    def _branches(self, messages: Iterable[StoredMessage]) -> dict[int, str]:
        """Return the branches of unarchived messages by place, if there are several."""
        sessions: dict[UUID, list[StoredMessage]] = {}
        for stored in messages:
            if stored.branched and stored.archive is None:
                sessions.setdefault(stored.session, []).append(stored)
        names_by_place: dict[int, str] = {}
        for session, group in sessions.items():
            names = self._scope.store.branches_holding(
                self._scope.user, session, [stored.message.id for stored in group]
            )
            ids = {stored.place: stored.message.id for stored in group}
            names_by_place |= {place: names[uid] for place, uid in ids.items() if uid in names}
        return names_by_place

    def _is_wanted(self, stored: StoredMessage) -> bool:
        """Return whether a message passes the filters: a neighbour of a hit may not."""
        filters, message = self._filters, stored.message
        return (
            message.id not in filters.without
            and filters.session in (None, stored.session)
            and (filters.since is None or message.created >= filters.since)
            and (filters.until is None or message.created < filters.until)
            and (filters.archive is None or stored.archive == filters.archive)
            and bool(self._utterances[stored.place].text)
        )

    def _message_match(
        self, stored: StoredMessage, branch: str | None, parts: ScoreParts, explain: bool
    ) -> Match:
        content, speaker, _ = self._utterances[stored.place]
        if len(content) > MAX_ABSTRACT_CHARS:
            content = tokenizer.snippet(content, list(self._words))
        return Match(
            uri=message_uri(stored, branch),
            category=MESSAGE,
            abstract=abstract_of(f"{speaker}: {content}" if speaker else content),
            score=min(1.0, parts.total),
            evidence=(EvidenceSource(stored.session, stored.message.id),),
            created_at=clock.to_datetime(stored.message.created),
            speaker=speaker,
            explained=parts.to_dict() if explain else {},
        )

    def _file_match(self, file: FileRecord, parts: ScoreParts, explain: bool) -> Match:
        version = file.latest
        abstract = version.info.get("abstract")
        return Match(
            uri=str(self._scope.uri(file)),
            category=file.category,
            abstract=abstract
            if abstract and isinstance(abstract, str)
            else abstract_of(version.body.decode(errors="replace")),
            score=min(1.0, parts.total),
            evidence=tuple(
                EvidenceSource(item.session, item.message)
                for item in version.evidence
                if item.owner == self._scope.user
            ),
            created_at=clock.to_datetime(version.valid_from),
            valid_to=None if version.valid_to is None else clock.to_datetime(version.valid_to),
            explained=parts.to_dict() if explain else {},
            metadata=_metadata_of(file),
        )


def _metadata_of(file: FileRecord) -> Mapping[str, Any]:
    metadata = file.latest.info.get("metadata")
    return cast("dict[str, Any]", metadata) if isinstance(metadata, dict) else {}


def _score_files(hits: Collection[FileHit], now: int) -> dict[int, ScoreParts]:
    folders = group_bonus((_folder(hit.file), hit.score) for hit in hits)
    scores: dict[int, ScoreParts] = {}
    for hit in hits:
        file, score = hit.file, hit.score
        scores[hit.place] = ScoreParts(
            words=score,
            together=folders[_folder(file)],
            distilled=MEMORY_BONUS * score if file.category else 0.0,
            recent=recency_bonus(now - file.latest.valid_from) * score,
            used=usage_bonus(file.active) * score,
        )
    return scores


def _is_within(path: str, under: str) -> bool:
    return not path.endswith("/") and (under in ("", path) or path.startswith(f"{under}/"))


def _folder(file: FileRecord) -> tuple[Owner, str]:
    return file.owner, file.path.rpartition("/")[0]


def message_uri(stored: StoredMessage, branch: str | None) -> str:
    """Return the URI of the file that contains a message: in an archive, or of a branch.

    Without the name of a branch it is that of the main branch.
    """
    if stored.archive is not None:
        folder = f"history/{archive_name(stored.archive)}/"
    else:
        folder = "" if branch in (None, MAIN) else f"branches/{branch_folder(branch)}/"
    return f"{SCHEME}session/{session_name(stored.key, stored.session)}/{folder}messages.jsonl"
