"""File changes of a commit, computed from its decisions before anything is written.

Decisions are applied in order to drafts of the files they concern. Several may change one file, and
one may name a file that an earlier one has just created; a text that is replaced within the batch
still gets a version of its own. A decision that cannot be applied is skipped and recorded in
`refused`.

A statement that is repeated in full (SKIP) gets a version with the same text and only the new
evidence, so that a statement made in two sessions survives when either is forgotten. A message that
repeats only a part is no evidence for the rest.

`SimilarMemories` finds what is known through the store's index: memories of the candidate's owner
and category that share a content word with it. So the cost of a commit depends on its matches, not
on the size of the memory. The profile is one file, of which all facts are ranked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, TypeAlias
from uuid import UUID

import msgspec

from sennit import clock
from sennit.ids import new_id
from sennit.memory.commit import profile
from sennit.memory.commit.profile import FactSource, ProfileFact
from sennit.memory.extraction.dedup import TextRanker, search_text, stated_after, supports
from sennit.memory.extraction.terms import is_frame
from sennit.memory.extraction.utterances import sentences
from sennit.memory.extraction.values import (
    Action,
    Candidate,
    Category,
    KnownMemory,
    MemoryDecision,
    abstract_of,
)
from sennit.memory.scope import MERGED_INTO, PROFILE, SUPERSEDED, MemoryScope, folder_of
from sennit.memory.uri import SCHEME, Uri, is_name
from sennit.stores.records.files import EvidenceRecord, FileRecord, PutFile, VersionRecord
from sennit.stores.records.search import FileQuery
from sennit.stores.records.sessions import Owner
from sennit.stores.search.tokenizer import query_words

Did: TypeAlias = Literal["created", "updated", "merged", "confirmed"]
_PROFILE_URI = f"{SCHEME}user/{PROFILE}"
_MAX_NUMBERED_NAMES = 20  # names tried with a number; each costs a lookup
_DID: dict[Action, Did] = {
    Action.CREATE: "created",
    Action.UPDATE: "updated",
    Action.MERGE: "merged",
    Action.SKIP: "confirmed",
}


class WrittenChange(msgspec.Struct, frozen=True):
    """The outcome of a decision, as `memory_diff.json` records it."""

    did: Did
    category: str
    uri: str
    version: int
    reason: str = ""


@dataclass(slots=True)
class _Draft:
    """A file and its next version."""

    owner: Owner
    id: UUID
    path: str
    category: Category
    number: int
    """The number of the next version."""
    text: str = ""
    valid_from: int = 0
    valid_to: int | None = None
    evidence: tuple[EvidenceRecord, ...] = ()
    """Unordered; the store sorts it."""
    facts: list[ProfileFact] = field(default_factory=list[ProfileFact])
    did: str = "created"
    commit: UUID | None = None
    """The commit that wrote the text; None if a person did."""
    written: int = 0
    stated: tuple[int, ...] = ()
    """When each sentence of the text was last stated; if empty, at `valid_from`."""
    joined: bool = False
    """Whether the text still contains statements of an earlier version."""
    is_new: bool = False
    """Whether a decision of this batch wrote the text."""
    merged_into: str = ""
    """The id of the memory it was merged into; then its text is empty."""


class FileChangeSet:
    """The files that one commit changes."""

    def __init__(self, scope: MemoryScope, session: UUID, commit: UUID, now: int) -> None:
        self.scope, self._session, self._commit, self._now = scope, session, commit, now
        self._files: dict[str, FileRecord | None] = {}
        self._drafts: dict[str, _Draft] = {}
        self._replaced: list[PutFile] = []  # versions replaced by later decisions of this batch
        self._resolved_ids: dict[str, str] = {}  # what candidates and facts have become
        self.written: list[WrittenChange] = []
        self.refused: list[str] = []

    def known_memory(self, file: FileRecord) -> KnownMemory:
        """Return a stored memory for comparison with candidates, and cache its file."""
        uri = str(self.scope.uri(file))
        self._files[uri] = file
        text, stated = file.latest.body.decode().strip(), file.latest.info.get("stated", ())
        return _known(uri, file.category or "", text, file.latest, stated)

    def known_facts(self) -> list[KnownMemory]:
        """Return the stored lines of the profile for comparison with candidates."""
        file = self._load(Uri.parse(_PROFILE_URI))
        return [
            _known(f"{_PROFILE_URI}#{fact.id}", Category.PROFILE, fact.text, fact, fact.stated)
            for fact in ([] if file is None else profile.load_facts(file.latest.info))
        ]

    def _load(self, uri: Uri) -> FileRecord | None:
        """Return the file at a URI, read once, so that a concurrent change ends in a conflict."""
        name = str(uri)
        if name not in self._files:
            self._files[name] = self.scope.find(uri)
        return self._files[name]

    def apply(self, decisions: Iterable[MemoryDecision]) -> None:
        """Apply decisions in order; those that cannot be applied go to `refused`."""
        for decision in decisions:
            reason = self._apply(decision)
            if reason is not None:
                self.refused.append(f"{decision.action} {decision.candidate.category}: {reason}")

    def _apply(self, decision: MemoryDecision) -> str | None:
        """Apply a decision; return the reason if it cannot be applied."""
        candidate, target = decision.candidate, decision.target
        if not (decision.text or candidate.text).strip():
            return "its text is empty"
        if decision.action is Action.CREATE:
            self._create(decision)
            return None
        uid = self._resolve(target or "")
        if candidate.category is Category.PROFILE:
            return self._change_fact(decision, uid)
        draft = self._draft(candidate.category, uid)
        if draft is None:
            return "the memory it would change is gone"
        for other in decision.absorbed:
            self._absorb(self._resolve(other), draft, uid, decision)
        self._change_file(draft, decision)
        return None

    def _resolve(self, uid: str) -> str:
        """Return the URI that a candidate was written to, or the fact that replaced a fact."""
        while uid in self._resolved_ids:
            uid = self._resolved_ids[uid]
        return uid

    def _absorb(self, other: str, into: _Draft, uri: str, decision: MemoryDecision) -> None:
        """Merge another memory into a draft.

        The last version of the merged file is empty and names the memory it became part of. Its
        history stays, and forgetting either of them undoes the merge.
        """
        draft = self._draft(into.category, other)
        if draft is None or draft is into:
            return
        if draft.is_new:
            self._replaced.append(self._to_change(draft))
            draft.number += 1
        into.evidence = tuple(dict.fromkeys((*into.evidence, *draft.evidence)))
        into.valid_from = min(into.valid_from, draft.valid_from)
        draft.evidence = (*draft.evidence, *self._evidence(decision.candidate))
        draft.text, draft.merged_into, draft.stated = "", str(into.id), ()
        draft.valid_from = self._valid_from(decision.candidate)
        self._touch(draft, "merged")
        self.written.append(
            WrittenChange("merged", str(draft.category), other, draft.number, f"now part of {uri}")
        )

    def _create(self, decision: MemoryDecision) -> None:
        candidate = decision.candidate
        if candidate.category is Category.PROFILE:
            fact = self._new_fact(decision)
            self._profile_draft().facts.append(fact)
            self._record_change(decision, self._profile_draft(), f"{_PROFILE_URI}#{fact.id}")
            return
        owner = self.scope.owner_of(candidate.category)
        uri = self._free_uri(candidate)
        draft = _Draft(owner, new_id(), uri.path, candidate.category, 1)
        self._drafts[str(uri)] = draft
        draft.text = decision.text or candidate.text
        draft.valid_from, draft.valid_to = self._valid_from(candidate), _to_us(candidate.valid_to)
        draft.evidence = self._evidence(candidate)
        draft.stated = self._stated({}, draft.text, candidate)
        self._touch(draft, "created")
        self._record_change(decision, draft, str(uri))

    def _touch(self, draft: _Draft, did: str) -> None:
        """Mark a draft as changed by this commit."""
        draft.did, draft.is_new = did, True
        draft.commit, draft.written = self._commit, self._now

    def _stated(self, before: dict[str, int], text: str, candidate: Candidate) -> tuple[int, ...]:
        return stated_after(before, text, candidate, clock.from_datetime(candidate.said_at))

    def _add_older(self, draft: _Draft, decision: MemoryDecision) -> None:
        """Add an older statement as a version, and the current one after it once more."""
        if draft.is_new:
            self._replaced.append(self._to_change(draft))
            draft.number += 1
        candidate, start = decision.candidate, self._valid_from(decision.candidate)
        older = _Draft(draft.owner, draft.id, draft.path, draft.category, draft.number)
        older.text, older.evidence = candidate.text, self._evidence(candidate)
        older.valid_from, older.valid_to = start, _to_us(candidate.valid_to)
        versions = self.scope.store.file_versions(draft.owner, draft.id)
        later = [version.valid_from for version in versions if version.valid_from > start]
        if later and min(later) < draft.valid_from:  # else it ends where the current one begins
            older.valid_to = min(*later, older.valid_to or draft.valid_from)
        self._touch(older, SUPERSEDED)
        self._replaced.append(self._to_change(older))
        self._record_change(decision, older, str(self.scope.uri_at(draft.owner, draft.path)))
        draft.number, draft.is_new = draft.number + 1, False

    def _change_file(self, draft: _Draft, decision: MemoryDecision) -> None:
        if decision.superseded_at is not None:
            self._add_older(draft, decision)
            return
        candidate, evidence = decision.candidate, self._evidence(decision.candidate)
        if draft.is_new and decision.action is Action.UPDATE:
            self._replaced.append(self._to_change(draft))
            draft.number += 1
        fresh = draft.is_new or draft.number == 1
        self._touch(draft, _DID[decision.action])
        before = _sentence_times(draft.text, draft.stated, draft.valid_from)
        match decision.action:
            case Action.UPDATE:
                # The other statements of the old text stay, with the old evidence.
                joined = decision.text.strip() != candidate.text.strip()
                draft.evidence = (*draft.evidence, *evidence) if joined else evidence
                draft.text, draft.joined = decision.text, joined
                draft.valid_from = _to_us(decision.closed_at) or self._valid_from(candidate)
                draft.valid_to = _to_us(candidate.valid_to)
            case Action.MERGE:
                draft.text, draft.evidence = decision.text, (*draft.evidence, *evidence)
                draft.joined = True
            case _ if not fresh and supports(candidate, draft.text):
                draft.evidence = evidence
            case _:
                draft.evidence = (*draft.evidence, *evidence)
                draft.joined = draft.joined or not fresh
        draft.stated = self._stated(before, draft.text, candidate)
        self._record_change(decision, draft, str(self.scope.uri_at(draft.owner, draft.path)))

    def _change_fact(self, decision: MemoryDecision, uid: str) -> str | None:
        draft, name = self._profile_draft(), uid.removeprefix(f"{_PROFILE_URI}#")
        old = next((fact for fact in draft.facts if fact.id == name), None)
        if old is None:
            return "the line of the profile it would change is gone"
        candidate = decision.candidate
        sources = tuple(map(FactSource.of, self._evidence(candidate)))
        before = _sentence_times(old.text, old.stated, old.valid_from)
        match decision.action:
            case Action.UPDATE if decision.superseded_at is not None:
                older, ended = self._new_fact(decision), clock.from_datetime(decision.superseded_at)
                draft.facts = profile.insert_older(draft.facts, old, older, ended)
                name = older.id
            case Action.UPDATE:
                new = self._new_fact(decision)
                at = _to_us(decision.closed_at) or new.valid_from
                draft.facts = profile.close_fact(draft.facts, name, at, new.id)
                self._replace([old], new)
                name = new.id
            case Action.MERGE:
                joined = [old, *self._absorbed_facts(decision, draft.facts)]
                old_sources = tuple(source for fact in joined for source in fact.sources)
                for fact in joined:
                    before |= _sentence_times(fact.text, fact.stated, fact.valid_from)
                merged = self._new_fact(decision)
                merged = msgspec.structs.replace(
                    merged,
                    sources=tuple(dict.fromkeys((*old_sources, *sources))),
                    valid_from=min(merged.valid_from, *(fact.valid_from for fact in joined)),
                    merged=True,
                    stated=self._stated(before, merged.text, candidate),
                )
                # The merged fact covers the time of the old ones, so that they never hold alone.
                for fact in joined:
                    draft.facts = profile.close_fact(
                        draft.facts, fact.id, fact.valid_from, merged.id
                    )
                self._replace(joined, merged)
                name = merged.id
            case _ if supports(candidate, old.text):
                draft.facts[draft.facts.index(old)] = msgspec.structs.replace(
                    old,
                    sources=tuple(dict.fromkeys((*old.sources, *sources))),
                    stated=self._stated(before, old.text, candidate),
                )
            case _:
                parts = tuple(dict.fromkeys((*old.parts, *sources)))
                draft.facts[draft.facts.index(old)] = msgspec.structs.replace(old, parts=parts)
        self._touch(draft, "updated")
        self._record_change(decision, draft, f"{_PROFILE_URI}#{name}")
        return None

    def _replace(self, old: Iterable[ProfileFact], new: ProfileFact) -> None:
        """Add a fact; later decisions about a fact that it replaces apply to it."""
        self._profile_draft().facts.append(new)
        self._resolved_ids |= {
            f"{_PROFILE_URI}#{fact.id}": f"{_PROFILE_URI}#{new.id}" for fact in old
        }

    def _absorbed_facts(
        self, decision: MemoryDecision, facts: Sequence[ProfileFact]
    ) -> list[ProfileFact]:
        ids = map(self._resolve, decision.absorbed)
        names = {uid.removeprefix(f"{_PROFILE_URI}#") for uid in ids}
        return [fact for fact in facts if fact.id in names and fact.valid_to is None]

    def _record_change(self, decision: MemoryDecision, draft: _Draft, uid: str) -> None:
        self._resolved_ids[decision.candidate.id] = uid
        did, category = _DID[decision.action], str(draft.category)
        self.written.append(WrittenChange(did, category, uid, draft.number, decision.reason))

    def _draft(self, category: Category, uri: str) -> _Draft | None:
        draft = self._drafts.get(uri)
        if draft is not None:
            return draft if draft.category is category else None
        # A candidate that was refused has no URI.
        file = self._load(Uri.parse(uri)) if uri.startswith(SCHEME) else None
        if file is None or file.category != category:
            return None
        last = file.latest
        draft = _Draft(file.owner, file.id, file.path, category, last.number + 1)
        draft.text, draft.evidence = last.body.decode().strip(), last.evidence
        draft.valid_from, draft.valid_to = last.valid_from, last.valid_to
        draft.did, draft.commit, draft.written = last.info.get("did", ""), last.commit, last.written
        draft.joined = bool(last.info.get("joined"))
        draft.stated = tuple(last.info.get("stated", ()))
        draft.facts = profile.load_facts(last.info)
        self._drafts[uri] = draft
        return draft

    def _profile_draft(self) -> _Draft:
        draft = self._draft(Category.PROFILE, _PROFILE_URI)
        if draft is None:
            draft = _Draft(self.scope.user, new_id(), PROFILE, Category.PROFILE, 1)
            self._touch(draft, "created")
            self._drafts[_PROFILE_URI] = draft
        return draft

    def _new_fact(self, decision: MemoryDecision) -> ProfileFact:
        candidate = decision.candidate
        text = " ".join((decision.text or candidate.text).split())
        return ProfileFact(
            profile.new_fact_id(),
            text,
            self._valid_from(candidate),
            _to_us(candidate.valid_to),
            tuple(map(FactSource.of, self._evidence(candidate))),
            self._commit,
            stated=self._stated({}, text, candidate),
        )

    def _evidence(self, candidate: Candidate) -> tuple[EvidenceRecord, ...]:
        user, session = self.scope.user, self._session
        return tuple(
            EvidenceRecord(user, session, quoted.message_id) for quoted in candidate.evidence
        )

    def _valid_from(self, candidate: Candidate) -> int:
        return _to_us(candidate.valid_from) or clock.from_datetime(candidate.said_at)

    def _free_uri(self, candidate: Candidate) -> Uri:
        folder = folder_of(candidate.category)
        base = Uri(candidate.category.owner, tuple(folder.rstrip("/").split("/")))
        slug = candidate.slug if is_name(f"{candidate.slug}.md") else str(candidate.category)
        uri = base / f"{slug}.md"
        for number in range(2, _MAX_NUMBERED_NAMES):
            if not self._is_taken(uri):
                return uri
            uri = base / f"{slug}-{number}.md"
        return base / f"{slug}-{self._commit.hex[-8:]}-{candidate.id.removeprefix('candidate-')}.md"

    def _is_taken(self, uri: Uri) -> bool:
        return str(uri) in self._drafts or self._load(uri) is not None

    def changes(self) -> list[PutFile]:
        """Return the new versions of the changed files."""
        return self._replaced + [self._to_change(draft) for draft in self._drafts.values()]

    def _content(self, draft: _Draft) -> dict[str, Any]:
        """Return the body, the evidence and the info of the next version."""
        if draft.category is Category.PROFILE:
            return profile.version_content(draft.facts, draft.did)
        info: dict[str, Any] = {"did": draft.did, "abstract": abstract_of(draft.text)}
        info |= {"joined": True} if draft.joined else {}
        info |= {MERGED_INTO: draft.merged_into} if draft.merged_into else {}
        if any(moment != draft.valid_from for moment in draft.stated):
            info["stated"] = draft.stated
        text = f"{draft.text.strip()}\n" if draft.text.strip() else ""
        return {"body": text.encode(), "evidence": draft.evidence, "info": info}

    def _to_change(self, draft: _Draft) -> PutFile:
        version = VersionRecord(
            number=draft.number,
            written=draft.written,
            valid_from=self._now if draft.category is Category.PROFILE else draft.valid_from,
            valid_to=draft.valid_to,
            commit=draft.commit,
            **self._content(draft),
        )
        return PutFile(draft.owner, draft.id, draft.path, str(draft.category), version)


def _known(
    uid: str,
    category: str,
    text: str,
    stored: VersionRecord | ProfileFact,
    stated: Iterable[int],
) -> KnownMemory:
    return KnownMemory(
        id=uid,
        category=Category(category),
        text=text,
        valid_from=clock.to_datetime(stored.valid_from),
        valid_to=None if stored.valid_to is None else clock.to_datetime(stored.valid_to),
        stated=tuple(map(clock.to_datetime, stated)),
    )


def _sentence_times(text: str, stated: Sequence[int], valid_from: int) -> dict[str, int]:
    """Return when each sentence of a text was last stated."""
    parts = sentences(text)
    return dict.fromkeys(parts, valid_from) | dict(zip(parts, stated, strict=False))


def _to_us(moment: datetime | None) -> int | None:
    return None if moment is None else clock.from_datetime(moment)


_MAX_HITS = 50


class SimilarMemories:
    """Ranks stored memories for the candidates of one commit."""

    def __init__(self, scope: MemoryScope, file_changes: FileChangeSet) -> None:
        self._scope, self._file_changes = scope, file_changes
        self._facts: TextRanker | None = None

    def __call__(self, candidate: Candidate) -> Sequence[KnownMemory]:
        """Return known memories of the candidate's owner and category, most similar first."""
        if candidate.category is Category.PROFILE:
            if self._facts is None:
                self._facts = TextRanker(self._file_changes.known_facts())
            return self._facts(candidate)
        category = candidate.category
        hits = self._scope.store.file_hits(
            FileQuery(
                _search_words(candidate),
                (self._scope.owner_of(category),),
                folder_of(category),
                (str(category),),
                limit=_MAX_HITS,
            )
        )
        return TextRanker(self._file_changes.known_memory(hit.file) for hit in reversed(hits))(
            candidate
        )


def _search_words(candidate: Candidate) -> tuple[str, ...]:
    """Return the words to search for, without frame words, which occur in most memories."""
    words = query_words(search_text(candidate))
    return tuple(word for word in words if not is_frame(word)) or tuple(words)
