"""Files: versioned, changed atomically across owners, invisible to other owners."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import msgspec

from sennit.errors import ConflictError, NotFoundError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.commits import AddCommit, CommitRecord, PutCommit
from sennit.stores.records.files import (
    CountUses,
    Derived,
    EndCommit,
    EvidenceRecord,
    FileRecord,
    MoveFile,
    PutFile,
    RemoveFile,
    RemoveVersions,
    VersionRecord,
    in_order,
)
from sennit.stores.records.sessions import Owner
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    StoreFixture,
    empty,
    raises,
    same,
)

AGENT = Owner("acme", "agent", "helper")
_PATH = "memories/preferences/tea.md"


def _version(number: int = 1, body: str = "likes tea", **fields: object) -> VersionRecord:
    record = VersionRecord(number, NOON + number, NOON + 10 * number, body.encode())
    return replace(record, **fields)  # pyright: ignore[reportArgumentType]


def _put(
    store: Store,
    path: str = _PATH,
    owner: Owner = OWNER,
    version: VersionRecord | None = None,
    uid: UUID | None = None,
) -> PutFile:
    change = PutFile(owner, uid or new_id(), path, "preferences", version or _version())
    store.change_files([change])
    return change


def _there(store: Store, owner: Owner = OWNER, path: str = _PATH) -> FileRecord:
    file = store.find_file(owner, path)
    assert file is not None, f"There should be a file {path!r}."
    return file


def there_are_no_files_at_first(store: Store) -> None:
    same(store.find_file(OWNER, _PATH), None, "A file nobody wrote")
    empty("Files", store.list_files(OWNER, ""), store.file_versions(OWNER, new_id()))
    empty("Derived", store.derived(OWNER, session=None), store.written_by(OWNER, new_id()))
    same(store.owned_by(OWNER), [OWNER], "Owners of files")


def a_file_is_kept_as_it_was_given(store: Store) -> None:
    evidence = in_order(EvidenceRecord(OWNER, new_id(), new_id()) for _ in range(3))
    version = _version(
        body="naïve 🦜\x00",
        valid_to=NOON + 99,
        commit=new_id(),
        info={"abstract": "tea", "n": [1, None]},
        evidence=evidence,
    )
    change = _put(store, version=version)
    file = FileRecord(OWNER, change.id, _PATH, "preferences", version.written, 0, version)
    same(_there(store), file, "The file")
    same(store.list_files(OWNER, ""), [file], "Files")
    same(store.file_versions(OWNER, change.id), [version], "Versions")


def files_are_read_by_their_ids(store: Store) -> None:
    first, second = _put(store), _put(store, "other.md")
    actual = store.files(OWNER, [second.id, new_id(), first.id])
    same(actual, [_there(store, path="other.md"), _there(store)], "Files")
    empty("No files, and a stranger's", store.files(OWNER, []), store.files(AGENT, [first.id]))


def a_file_has_all_its_versions(store: Store) -> None:
    change = _put(store)
    for number in (2, 3):
        _put(store, version=_version(number, f"cup {number}"), uid=change.id)
    versions = store.file_versions(OWNER, change.id)
    same(
        [version.body for version in versions], [b"likes tea", b"cup 2", b"cup 3"], "What they say"
    )
    same(
        [version.replaced for version in versions],
        [NOON + 20, NOON + 30, None],
        "When each was replaced",
    )
    same(_there(store).latest, versions[-1], "The last version")
    same(_there(store).created, NOON + 1, "When it was created")


def a_version_written_again_changes_nothing(store: Store) -> None:
    change = _put(store)
    second = _version(2, "cup")
    for _ in range(2):
        _put(store, version=second, uid=change.id)
        store.change_files([change])
    same(len(store.file_versions(OWNER, change.id)), 2, "How many versions")


def a_version_that_does_not_follow_the_last_is_refused(store: Store) -> None:
    change = _put(store)
    _put(store, version=_version(2), uid=change.id)
    for wrong in (_version(1, "other"), _version(2, "other"), _version(4)):
        raises(
            ConflictError, lambda w=wrong: _put(store, version=w, uid=change.id), f"{wrong!r:.90}"
        )
    raises(ConflictError, lambda: _put(store, "new.md", version=_version(2)), "A second first one")
    same(len(store.file_versions(OWNER, change.id)), 2, "How many versions")


def two_files_do_not_share_a_path(store: Store) -> None:
    change, other = _put(store), _put(store, "other.md")
    raises(ConflictError, lambda: _put(store), "A path that is taken")
    for taking in (
        MoveFile(OWNER, other.id, _PATH, None),
        PutFile(OWNER, other.id, _PATH, None, _version(2)),
    ):
        raises(ConflictError, lambda t=taking: store.change_files([t]), "A path that is taken")
    same(_there(store).id, change.id, "Whose path it is")
    _put(store, owner=AGENT)


def files_are_listed_by_what_their_path_begins_with(store: Store) -> None:
    for path in ("b/1.md", "a/2.md", "a/10.md", "a%/x.md", "a_/x.md", "A/x.md", "é/x.md", "a.md"):
        _put(store, path)
    paths = [file.path for file in store.list_files(OWNER, "a/")]
    same(paths, ["a/10.md", "a/2.md"], "Files under a/")
    everything = [file.path for file in store.list_files(OWNER, "")]
    expected = ["A/x.md", "a%/x.md", "a.md", "a/10.md", "a/2.md", "a_/x.md", "b/1.md", "é/x.md"]
    same(everything, expected, "All files")
    empty("Files under a_%", store.list_files(OWNER, "a_%"))


def a_moved_file_keeps_its_versions(store: Store) -> None:
    change = _put(store)
    for _ in range(2):
        store.change_files([MoveFile(OWNER, change.id, "elsewhere.md", None)])
    same(store.find_file(OWNER, _PATH), None, "What is left at its place")
    moved = _there(store, path="elsewhere.md")
    same((moved.id, moved.category, moved.latest), (change.id, None, _version()), "The file")
    unknown = MoveFile(OWNER, new_id(), "x.md", None)
    raises(NotFoundError, lambda: store.change_files([unknown]), "Moving what is not there")


def a_removed_file_is_gone_with_its_versions(store: Store) -> None:
    scene = new_id()
    said = _version(evidence=(EvidenceRecord(OWNER, scene, new_id()),))
    change, other = _put(store, version=said), _put(store, "other.md")
    _put(store, version=_version(2), uid=change.id)
    for _ in range(2):
        store.change_files([RemoveFile(OWNER, change.id)])
    same([file.id for file in store.list_files(OWNER, "")], [other.id], "Files that are left")
    empty("Versions", store.file_versions(OWNER, change.id), store.derived(OWNER, session=scene))
    _put(store)


def a_file_falls_back_to_the_version_that_is_left(store: Store) -> None:
    change = _put(store)
    for number in (2, 3, 4):
        _put(store, version=_version(number, f"cup {number}"), uid=change.id)
    store.change_files([RemoveVersions(OWNER, change.id, (2, 4))])
    versions = store.file_versions(OWNER, change.id)
    same(
        [(version.number, version.replaced) for version in versions],
        [(1, NOON + 30), (3, None)],
        "Versions",
    )
    same(_there(store).latest.body, b"cup 3", "What it says")
    for _ in range(2):
        store.change_files([RemoveVersions(OWNER, change.id, (1, 3))])
    same(store.find_file(OWNER, _PATH), None, "A file without versions")


def uses_are_counted_on_the_file_that_is_there(store: Store) -> None:
    _put(store)
    store.change_files([CountUses(OWNER, _PATH, 2), CountUses(OWNER, "nowhere.md", 1)])
    store.change_files([CountUses(OWNER, _PATH, 1), CountUses(AGENT, _PATH, 5)])
    same(_there(store).active, 3, "How often it was used")


def changes_of_files_are_made_together_or_not_at_all(store: Store) -> None:
    change, spare = _put(store), _put(store, "spare.md")
    good = (
        PutFile(OWNER, change.id, _PATH, "preferences", _version(2)),
        PutFile(AGENT, new_id(), "memories/cases/a.md", "cases", _version()),
        MoveFile(OWNER, spare.id, "moved.md", None),
        CountUses(OWNER, _PATH, 1),
        RemoveVersions(OWNER, change.id, (1,)),
    )
    bad = PutFile(OWNER, new_id(), _PATH, None, _version())
    for at in range(len(good) + 1):
        changes = *good[:at], bad, *good[at:]
        raises(ConflictError, lambda c=changes: store.change_files(c), "A bad change")
        same(store.file_versions(OWNER, change.id), [_version()], f"Versions, bad at {at}")
        same([file.path for file in store.list_files(OWNER, "")], [_PATH, "spare.md"], "Paths")
        same(_there(store).active, 0, "How often it was used")
        empty("Files of the agent", store.list_files(AGENT, ""))
    store.change_files(good)
    same([file.path for file in store.list_files(OWNER, "")], [_PATH, "moved.md"], "Paths at last")


def files_are_written_with_the_end_of_their_commit_and_once(store: Store) -> None:
    scene = StoreFixture(store)
    commit = CommitRecord(new_id(), 1, scene.branch().id, NOON, "open", ())
    scene.write(AddCommit(commit))
    end = EndCommit(OWNER, scene.id, PutCommit(commit.id, "committed", b'{"n":1}', 0))
    put = PutFile(OWNER, new_id(), _PATH, "preferences", _version(commit=commit.id))
    changes = [put, CountUses(OWNER, _PATH, 1)]
    for _ in range(3):
        store.change_files(changes, end)
        same(_there(store).active, 1, "How often it was used")
    other = EndCommit(OWNER, scene.id, PutCommit(commit.id, "committed", b'{"n":2}', 0))
    late = [PutFile(OWNER, new_id(), "late.md", None, _version())]
    raises(ConflictError, lambda: store.change_files(late, other), "A commit that has ended")
    same(store.find_file(OWNER, "late.md"), None, "What came too late")
    same(store.written_by(OWNER, commit.id), [Derived(OWNER, put.id, 1)], "What it has written")
    for owner in (STRANGER, AGENT, Owner("other", "user", "ada")):
        empty("What another owner sees", store.written_by(owner, commit.id))


def what_a_user_owns_is_found_and_nothing_of_others(store: Store) -> None:
    commit = new_id()
    mine = [OWNER, *(Owner("acme", kind, "helper", "ada") for kind in ("agent", "tenant"))]
    others = [
        AGENT,
        Owner("acme", "agent", "ada"),
        Owner("acme", "agent", "helper", "bob"),
        Owner("other", "agent", "helper", "ada"),
        Owner("acme", "tenant", "acme"),
        STRANGER,
    ]
    put = {owner: _put(store, owner=owner, version=_version(commit=commit)) for owner in mine}
    for owner in others:
        _put(store, owner=owner, version=_version(commit=commit))
    same(store.owned_by(OWNER), mine, "Owners of files")
    actual = {derived.owner: derived.file for derived in store.written_by(OWNER, commit)}
    same(actual, {owner: put[owner].id for owner in mine}, "What the commit has written of theirs")


def a_refused_file_leaves_its_commit_open(store: Store) -> None:
    scene = StoreFixture(store)
    commit = CommitRecord(new_id(), 1, scene.branch().id, NOON, "open", ())
    scene.write(AddCommit(commit))
    _put(store)
    end = EndCommit(OWNER, scene.id, PutCommit(commit.id, "committed", b"{}", 0))
    conflicting = [PutFile(OWNER, new_id(), _PATH, None, _version())]
    raises(ConflictError, lambda: store.change_files(conflicting, end), "A path that is taken")
    same(store.commits(OWNER, scene.id).commits, [commit], "Commits")
    gone = msgspec.structs.replace(end, session=new_id())
    raises(NotFoundError, lambda: store.change_files([], gone), "The end of a lost commit")


def what_came_from_a_session_is_found(store: Store) -> None:
    here, there, message = new_id(), new_id(), new_id()
    mine = _put(store, version=_version(evidence=(EvidenceRecord(OWNER, here, message),)))
    second = _version(
        2, evidence=(EvidenceRecord(OWNER, here, message), EvidenceRecord(OWNER, there, new_id()))
    )
    _put(store, version=second, uid=mine.id)
    of_agent = _put(
        store, owner=AGENT, version=_version(evidence=(EvidenceRecord(OWNER, there, here),))
    )
    _put(store, "x.md", version=_version(evidence=(EvidenceRecord(STRANGER, here, message),)))
    first, both = Derived(OWNER, mine.id, 1), Derived(OWNER, mine.id, 2)
    same(store.derived(OWNER, session=here), [first, both], "From one session")
    helped = Derived(AGENT, of_agent.id, 1)
    same(store.derived(OWNER, session=there), [helped, both], "From the other session")
    same(store.derived(OWNER, session=None), [helped, first, both], "From all sessions")
    same(store.derived(OWNER, session=here, message=message), [first, both], "From a message")
    empty("From another message", store.derived(OWNER, session=here, message=there))


def files_stay_when_the_session_they_came_from_is_deleted(store: Store) -> None:
    scene = StoreFixture(store)
    _put(store, version=_version(evidence=(EvidenceRecord(OWNER, scene.id, new_id()),)))
    store.delete_session(OWNER, scene.id)
    same(len(_there(store).latest.evidence), 1, "How much evidence")


def files_of_another_owner_are_not_reached(store: Store) -> None:
    change = _put(store)
    strangers = (
        STRANGER,
        AGENT,
        Owner("acme", "agent", "ada"),
        Owner("acme", "user", "ada", "ada"),
        Owner("other", "user", "ada"),
    )
    for owner in strangers:
        same(store.find_file(owner, _PATH), None, "Another owner's file")
        empty("Their files", store.list_files(owner, ""), store.file_versions(owner, change.id))
        for harm in (
            RemoveFile(owner, change.id),
            RemoveVersions(owner, change.id, (1,)),
            CountUses(owner, _PATH, 1),
        ):
            store.change_files([harm])
        move = MoveFile(owner, change.id, "x.md", None)
        raises(NotFoundError, lambda m=move: store.change_files([m]), "Moving another's file")
    same(
        _there(store),
        FileRecord(OWNER, change.id, _PATH, "preferences", NOON + 1, 0, _version()),
        "It",
    )
