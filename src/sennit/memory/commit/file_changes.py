"""File changes of a commit, computed from its decisions before anything is written.

Decisions are applied in their order to drafts of the files they concern. Several may concern one
file, and one may name what an earlier one has just written; each file still gets one new version.
What cannot be applied is left out and said, never guessed.

A statement that is repeated in full (SKIP) becomes a version with the same text and the new
evidence alone: so what was said twice outlives the forgetting of either session. Whoever repeats a
part of it is no witness for the rest.
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
from sennit.memory.extraction.clauses import telling
from sennit.memory.extraction.values import (
    Action,
    Candidate,
    Category,
    KnownMemory,
    MemoryDecision,
    abstract_of,
)
from sennit.memory.scope import MERGED_INTO, PROFILE, MemoryScope, folder_of
from sennit.memory.uri import SCHEME, Uri, is_name
from sennit.stores.records.files import EvidenceRecord, FileRecord, PutFile, VersionRecord
from sennit.stores.records.sessions import Owner

Did: TypeAlias = Literal["created", "updated", "merged", "confirmed"]
_PROFILE_URI = f"{SCHEME}user/{PROFILE}"
_NUMBERED = 20  # up to so many of one name are told apart by numbers; looking for more costs more
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
    """A file on its way to its next version."""

    owner: Owner
    id: UUID
    path: str
    category: Category
    number: int
    """Of the version it will be."""
    text: str = ""
    valid_from: int = 0
    valid_to: int | None = None
    evidence: tuple[EvidenceRecord, ...] = ()
    """In any order; the store puts it in one."""
    facts: list[ProfileFact] = field(default_factory=list[ProfileFact])
    did: Did = "created"
    joined: bool = False
    """Whether its text says on what a version before it said."""
    is_new: bool = False
    """Whether what it says was said in this very batch."""
    merged_into: str = ""
    """The id of the memory that it became part of; then it says nothing any more."""


class FileChangeSet:
    """The files that one commit changes."""

    def __init__(self, realm: MemoryScope, session: UUID, commit: UUID, now: int) -> None:
        self._realm, self._session, self._commit, self._now = realm, session, commit, now
        self._files: dict[str, FileRecord | None] = {}
        self._drafts: dict[str, _Draft] = {}
        self._replaced: list[PutFile] = []  # versions that did not outlive the batch
        self._ids: dict[str, str] = {}  # what candidates and facts have become in this batch
        self.written: list[WrittenChange] = []
        self.refused: list[str] = []

    @property
    def realm(self) -> MemoryScope:
        """The scope that owns the files."""
        return self._realm

    def known(self, file: FileRecord) -> KnownMemory:
        """A memory that is there already, as candidates are compared with it."""
        uri = str(self._realm.uri(file))
        self._files[uri] = file
        return _known_file(uri, Category(file.category or ""), file.latest)

    def known_facts(self) -> list[KnownMemory]:
        """The lines of the profile that are there already."""
        file = self._stored(Uri.parse(_PROFILE_URI))
        return [] if file is None else [*map(_known_fact, profile.facts_in(file.latest.info))]

    def _stored(self, uri: Uri) -> FileRecord | None:
        """The file there, read once: what comes meanwhile was not thought of, and is a conflict."""
        name = str(uri)
        if name not in self._files:
            self._files[name] = self._realm.find(uri)
        return self._files[name]

    def apply(self, decisions: Iterable[MemoryDecision]) -> None:
        """Take in decisions, in order; what cannot be done is noted in `refused`."""
        for decision in decisions:
            fault = self._apply(decision)
            if fault is not None:
                self.refused.append(f"{decision.action} {decision.candidate.category}: {fault}")

    def _apply(self, decision: MemoryDecision) -> str | None:
        """Take in a decision; gives why it could not be."""
        candidate, target = decision.candidate, decision.target
        if not (decision.text or candidate.text).strip():
            return "it says nothing"
        if decision.action is Action.CREATE:
            self._create(decision)
            return None
        uid = self._became(target or "")
        if candidate.category is Category.PROFILE:
            return self._change_fact(decision, uid)
        draft = self._draft(candidate.category, uid)
        if draft is None:
            return "the memory it would change is gone"
        for other in decision.absorbed:
            self._absorb(self._became(other), draft, uid, decision)
        self._change(draft, decision)
        return None

    def _became(self, named: str) -> str:
        """The address that a candidate has, or the fact that has taken a fact's place, by now."""
        while named in self._ids:
            named = self._ids[named]
        return named

    def _absorb(self, other: str, into: _Draft, uri: str, decision: MemoryDecision) -> None:
        """Merge a further memory into a draft; its history stays, and forgetting either undoes it.

        The last version of the merged file says nothing and names the memory it became part of.
        """
        draft = self._draft(into.category, other)
        if draft is None or draft is into:
            return
        if draft.is_new:
            self._replaced.append(self._put(draft))
            draft.number += 1
        into.evidence = tuple(dict.fromkeys((*into.evidence, *draft.evidence)))
        into.valid_from = min(into.valid_from, draft.valid_from)
        draft.evidence = (*draft.evidence, *self._evidence(decision.candidate))
        draft.text, draft.merged_into, draft.did = "", str(into.id), "merged"
        draft.valid_from, draft.is_new = self._since(decision.candidate), True
        self.written.append(
            WrittenChange("merged", str(draft.category), other, draft.number, f"now part of {uri}")
        )

    def _create(self, decision: MemoryDecision) -> None:
        candidate = decision.candidate
        if candidate.category is Category.PROFILE:
            fact = self._fact(decision)
            self._profile().facts.append(fact)
            self._note(decision, self._profile(), f"{_PROFILE_URI}#{fact.id}")
            return
        owner = self._realm.owner_of(candidate.category)
        uri = self._free_uri(candidate)
        draft = _Draft(owner, new_id(), uri.path, candidate.category, 1)
        self._drafts[str(uri)] = draft
        draft.text = decision.text or candidate.text
        draft.valid_from, draft.valid_to = self._since(candidate), _us(candidate.valid_to)
        draft.evidence, draft.is_new = self._evidence(candidate), True
        self._note(decision, draft, str(uri))

    def _change(self, draft: _Draft, decision: MemoryDecision) -> None:
        candidate, mine = decision.candidate, self._evidence(decision.candidate)
        if draft.is_new and decision.action is Action.UPDATE:
            self._replaced.append(self._put(draft))
            draft.number += 1
        fresh = draft.is_new or draft.number == 1
        draft.did, draft.is_new = _DID[decision.action], True
        match decision.action:
            case Action.UPDATE:
                # What the old text said besides is said on, and still rests on the old evidence.
                joined = decision.text.strip() != candidate.text.strip()
                draft.evidence = (*draft.evidence, *mine) if joined else mine
                draft.text, draft.joined = decision.text, joined
                draft.valid_from = _us(decision.closed_at) or self._since(candidate)
                draft.valid_to = _us(candidate.valid_to)
            case Action.MERGE:
                draft.text, draft.evidence = decision.text, (*draft.evidence, *mine)
                draft.joined = True
            case _ if not fresh and _says_all(candidate, draft.text):
                draft.evidence = mine
            case _:
                draft.evidence = (*draft.evidence, *mine)
                draft.joined = draft.joined or not fresh
        self._note(decision, draft, str(self._realm.uri_at(draft.owner, draft.path)))

    def _change_fact(self, decision: MemoryDecision, uid: str) -> str | None:
        draft, name = self._profile(), uid.removeprefix(f"{_PROFILE_URI}#")
        old = next((fact for fact in draft.facts if fact.id == name), None)
        if old is None:
            return "the line of the profile it would change is gone"
        sources = tuple(map(FactSource.of, self._evidence(decision.candidate)))
        match decision.action:
            case Action.UPDATE:
                new = self._fact(decision)
                at = _us(decision.closed_at) or new.valid_from
                draft.facts = profile.closed(draft.facts, name, at, new.id)
                self._replace([old], new)
                name = new.id
            case Action.MERGE:
                joined = [old, *self._absorbed_facts(decision, draft.facts)]
                known = tuple(source for one in joined for source in one.sources)
                merged = self._fact(decision)
                merged = msgspec.structs.replace(
                    merged,
                    sources=tuple(dict.fromkeys((*known, *sources))),
                    valid_from=min(merged.valid_from, *(one.valid_from for one in joined)),
                    merged=True,
                )
                # The merged one holds for all the time the old ones did: they never count alone.
                for one in joined:
                    draft.facts = profile.closed(draft.facts, one.id, one.valid_from, merged.id)
                self._replace(joined, merged)
                name = merged.id
            case _ if _says_all(decision.candidate, old.text):
                seen = tuple(dict.fromkeys((*old.sources, *sources)))
                draft.facts[draft.facts.index(old)] = msgspec.structs.replace(old, sources=seen)
            case _:
                heard = tuple(dict.fromkeys((*old.parts, *sources)))
                draft.facts[draft.facts.index(old)] = msgspec.structs.replace(old, parts=heard)
        draft.did = "updated"
        self._note(decision, draft, f"{_PROFILE_URI}#{name}")
        return None

    def _replace(self, old: Iterable[ProfileFact], new: ProfileFact) -> None:
        """Add a fact; decisions that follow and name one that it replaces mean it."""
        self._profile().facts.append(new)
        self._ids |= {f"{_PROFILE_URI}#{one.id}": f"{_PROFILE_URI}#{new.id}" for one in old}

    def _absorbed_facts(
        self, decision: MemoryDecision, facts: Sequence[ProfileFact]
    ) -> list[ProfileFact]:
        ids = map(self._became, decision.absorbed)
        names = {uid.removeprefix(f"{_PROFILE_URI}#") for uid in ids}
        return [fact for fact in facts if fact.id in names and fact.valid_to is None]

    def _note(self, decision: MemoryDecision, draft: _Draft, uid: str) -> None:
        self._ids[decision.candidate.id] = uid
        did, category = _DID[decision.action], str(draft.category)
        self.written.append(WrittenChange(did, category, uid, draft.number, decision.reason))

    def _draft(self, category: Category, uri: str) -> _Draft | None:
        draft = self._drafts.get(uri)
        if draft is not None:
            return draft if draft.category is category else None
        # A candidate that could not be written is no address.
        file = self._stored(Uri.parse(uri)) if uri.startswith(SCHEME) else None
        if file is None or file.category != category:
            return None
        last = file.latest
        draft = _Draft(file.owner, file.id, file.path, category, last.number + 1)
        draft.text, draft.evidence = last.body.decode().strip(), last.evidence
        draft.valid_from, draft.valid_to = last.valid_from, last.valid_to
        draft.facts = profile.facts_in(last.info)
        self._drafts[uri] = draft
        return draft

    def _profile(self) -> _Draft:
        draft = self._draft(Category.PROFILE, _PROFILE_URI)
        if draft is None:
            draft = _Draft(self._realm.user, new_id(), PROFILE, Category.PROFILE, 1)
            self._drafts[_PROFILE_URI] = draft
        return draft

    def _fact(self, decision: MemoryDecision) -> ProfileFact:
        candidate = decision.candidate
        return ProfileFact(
            profile.new_fact_id(),
            " ".join((decision.text or candidate.text).split()),
            self._since(candidate),
            _us(candidate.valid_to),
            tuple(map(FactSource.of, self._evidence(candidate))),
            self._commit,
        )

    def _evidence(self, candidate: Candidate) -> tuple[EvidenceRecord, ...]:
        user, session = self._realm.user, self._session
        return tuple(EvidenceRecord(user, session, one.message_id) for one in candidate.evidence)

    def _since(self, candidate: Candidate) -> int:
        return _us(candidate.valid_from) or clock.from_datetime(candidate.said_at)

    def _free_uri(self, candidate: Candidate) -> Uri:
        folder = folder_of(candidate.category)
        base = Uri(candidate.category.owner, tuple(folder.rstrip("/").split("/")))
        slug = candidate.slug if is_name(f"{candidate.slug}.md") else str(candidate.category)
        uri = base / f"{slug}.md"
        for number in range(2, _NUMBERED):
            if not self._is_taken(uri):
                return uri
            uri = base / f"{slug}-{number}.md"
        return base / f"{slug}-{self._commit.hex[-8:]}-{candidate.id.removeprefix('candidate-')}.md"

    def _is_taken(self, uri: Uri) -> bool:
        return str(uri) in self._drafts or self._stored(uri) is not None

    def changes(self) -> list[PutFile]:
        """The new versions of the files that were changed."""
        return self._replaced + [self._put(draft) for draft in self._drafts.values()]

    def _put(self, draft: _Draft) -> PutFile:
        info: dict[str, Any] = {"did": draft.did, "abstract": abstract_of(draft.text)}
        info |= {"joined": True} if draft.joined else {}
        info |= {MERGED_INTO: draft.merged_into} if draft.merged_into else {}
        text = f"{draft.text.strip()}\n" if draft.text.strip() else ""
        since, evidence = draft.valid_from, draft.evidence
        if draft.category is Category.PROFILE:
            text, since = profile.lines_of(draft.facts), self._now
            evidence = profile.evidence_of(draft.facts)
            info = {
                "did": draft.did,
                "abstract": profile_abstract(draft.facts),
                "facts": profile.facts_info(draft.facts),
            }
        version = VersionRecord(
            number=draft.number,
            written=self._now,
            valid_from=since,
            valid_to=draft.valid_to,
            body=text.encode(),
            commit=self._commit,
            info=info,
            evidence=evidence,
        )
        return PutFile(draft.owner, draft.id, draft.path, str(draft.category), version)


def profile_abstract(facts: Sequence[ProfileFact]) -> str:
    """Return the current profile in one line."""
    return abstract_of("; ".join(fact.text for fact in facts if fact.valid_to is None))


def _known_file(uri: str, category: Category, version: VersionRecord) -> KnownMemory:
    return KnownMemory(
        id=uri,
        category=category,
        text=version.body.decode().strip(),
        valid_from=clock.to_datetime(version.valid_from),
        valid_to=None if version.valid_to is None else clock.to_datetime(version.valid_to),
    )


def _known_fact(fact: ProfileFact) -> KnownMemory:
    return KnownMemory(
        id=f"{_PROFILE_URI}#{fact.id}",
        category=Category.PROFILE,
        text=fact.text,
        valid_from=clock.to_datetime(fact.valid_from),
        valid_to=None if fact.valid_to is None else clock.to_datetime(fact.valid_to),
    )


def _says_all(candidate: Candidate, text: str) -> bool:
    """Return whether every telling word of a text stands in what a candidate rests on."""
    said = " ".join((candidate.text, *(one.quote for one in candidate.evidence)))
    return telling(text) <= telling(said)


def _us(moment: datetime | None) -> int | None:
    return None if moment is None else clock.from_datetime(moment)
