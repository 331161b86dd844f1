"""Files: versioned, changed atomically across owners, invisible to other owners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from sennit.errors import ConflictError, NotFoundError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.commits import AddCommit, CommitRecord, PutCommit
from sennit.stores.records.files import (
    CountUses,
    Derived,
    EndCommit,
    EvidenceRecord,
    FileChange,
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
    Scenario,
    empty,
    raises,
    same,
)

AGENT = Owner("acme", "agent", "helper")
_PATH = "memories/preferences/tea.md"


def _version(number: int = 1, body: str = "likes tea", **fields: Any) -> VersionRecord:
    record = VersionRecord(number, NOON + number, NOON + 10 * number, body.encode())
    return replace(record, **fields)


def _putting(
    path: str = _PATH, owner: Owner = OWNER, uid: UUID | None = None, number: int = 1, **fields: Any
) -> PutFile:
    return PutFile(owner, uid or new_id(), path, "preferences", _version(number, **fields))


def _put(store: Store, path: str = _PATH, **fields: Any) -> PutFile:
    """Write a file; writing it again changes nothing."""
    change = _putting(path, **fields)
    for _ in range(2):
        store.change_files([change])
    return change


def _there(store: Store, path: str = _PATH) -> FileRecord:
    file = store.find_file(OWNER, path)
    assert file is not None, f"There should be a file {path!r}."
    return file


def _refused(
    store: Store,
    kind: type[Exception],
    changes: Sequence[FileChange],
    end: EndCommit | None = None,
) -> None:
    """Assert that changes are refused, and change nothing."""

    def everything() -> list[object]:
        files = [file for owner in (OWNER, AGENT) for file in store.list_files(owner, "")]
        return [(file, store.file_versions(file.owner, file.id)) for file in files]

    before = everything()
    raises(kind, lambda: store.change_files(changes, end), f"{changes!r:.200}")
    same(everything(), before, "The files after refused changes")


def there_are_no_files_at_first(store: Store) -> None:
    same(store.find_file(OWNER, _PATH), None, "A file nobody wrote")
    empty("Files", store.list_files(OWNER, ""), store.file_versions(OWNER, new_id()))
    empty("Derived", store.derived(OWNER, session=None), store.written_by(OWNER, new_id()))
    same(store.owned_by(OWNER), [OWNER], "Owners of files")


def a_file_is_kept_as_it_was_given(store: Store) -> None:
    change = _put(
        store,
        body="naïve 🦜\x00",
        valid_to=NOON + 99,
        commit=new_id(),
        info={"abstract": "tea", "n": [1, None]},
        evidence=in_order(EvidenceRecord(OWNER, new_id(), new_id()) for _ in range(3)),
    )
    version, other = change.version, _put(store, "other.md")
    file = FileRecord(OWNER, change.id, _PATH, "preferences", version.written, 0, version)
    same(_there(store), file, "The file")
    same(store.list_files(OWNER, "memories/"), [file], "Files")
    same(store.file_versions(OWNER, change.id), [version], "Versions")
    by_id = store.files(OWNER, [other.id, new_id(), change.id])
    same(by_id, [_there(store, "other.md"), file], "Files by their ids")
    empty("No files, and a stranger's", store.files(OWNER, []), store.files(AGENT, [change.id]))


def a_file_has_the_versions_that_were_not_removed(store: Store) -> None:
    change = _put(store)
    for number in (2, 3, 4):
        _put(store, uid=change.id, number=number, body=f"cup {number}")
    for removed, left in (
        ((), {1: 20, 2: 30, 3: 40, 4: None}),
        ((2, 4), {1: 30, 3: None}),
        ((1, 3), {}),
    ):
        for _ in range(2):
            store.change_files([RemoveVersions(OWNER, change.id, removed)])
        versions = store.file_versions(OWNER, change.id)
        replaced = {number: at and NOON + at for number, at in left.items()}
        same({one.number: one.replaced for one in versions}, replaced, "When each was replaced")
        if left:
            same(_there(store).latest, versions[-1], "The last version")
            same(_there(store).created, NOON + 1, "When it was created")
    same(store.find_file(OWNER, _PATH), None, "A file without versions")


def a_version_that_does_not_follow_the_last_is_refused(store: Store) -> None:
    uid = _put(store).id
    _put(store, uid=uid, number=2)
    for number, body in ((1, "other"), (2, "other"), (4, "likes tea")):
        _refused(store, ConflictError, [_putting(uid=uid, number=number, body=body)])
    _refused(store, ConflictError, [_putting("new.md", number=2)])


def two_files_do_not_share_a_path(store: Store) -> None:
    other = _put(store), _put(store, "other.md")
    uid = other[1].id
    _refused(store, ConflictError, [_putting()])
    _refused(store, ConflictError, [MoveFile(OWNER, uid, _PATH, None)])
    _refused(store, ConflictError, [_putting(uid=uid, number=2)])
    _put(store, owner=AGENT)


def files_are_listed_by_what_their_path_begins_with(store: Store) -> None:
    paths = ["A/x.md", "a%/x.md", "a.md", "a/10.md", "a/2.md", "a_/x.md", "b/1.md", "é/x.md"]
    for path in paths[::-1]:
        _put(store, path)
    for under, expected in (("a/", paths[3:5]), ("", paths), ("a_%", [])):
        same([file.path for file in store.list_files(OWNER, under)], expected, f"Under {under!r}")


def a_moved_file_keeps_its_versions(store: Store) -> None:
    change = _put(store)
    for _ in range(2):
        store.change_files([MoveFile(OWNER, change.id, "elsewhere.md", None)])
    same(store.find_file(OWNER, _PATH), None, "What is left at its place")
    moved = _there(store, "elsewhere.md")
    same((moved.id, moved.category, moved.latest), (change.id, None, _version()), "The file")
    _refused(store, NotFoundError, [MoveFile(OWNER, new_id(), "x.md", None)])


def a_removed_file_is_gone_with_its_versions(store: Store) -> None:
    said = EvidenceRecord(OWNER, new_id(), new_id())
    change, other = _put(store, evidence=(said,)), _put(store, "other.md")
    _put(store, uid=change.id, number=2)
    for _ in range(2):
        store.change_files([RemoveFile(OWNER, change.id)])
    same([file.id for file in store.list_files(OWNER, "")], [other.id], "Files that are left")
    empty("Versions", store.file_versions(OWNER, change.id))
    empty("Derived", store.derived(OWNER, session=said.session))
    _put(store)


def uses_are_counted_on_the_file_that_is_there(store: Store) -> None:
    _put(store)
    store.change_files([CountUses(OWNER, _PATH, 2), CountUses(OWNER, "nowhere.md", 1)])
    store.change_files([CountUses(OWNER, _PATH, 1), CountUses(AGENT, _PATH, 5)])
    same(_there(store).active, 3, "How often it was used")


def changes_of_files_are_made_together_or_not_at_all(store: Store) -> None:
    change, spare = _put(store), _put(store, "spare.md")
    good = (
        _putting(uid=change.id, number=2),
        _putting("memories/cases/a.md", AGENT),
        MoveFile(OWNER, spare.id, "moved.md", None),
        CountUses(OWNER, _PATH, 1),
        RemoveVersions(OWNER, change.id, (1,)),
    )
    for at in range(len(good) + 1):
        _refused(store, ConflictError, [*good[:at], _putting(), *good[at:]])
    store.change_files(good)
    same([file.path for file in store.list_files(OWNER, "")], [_PATH, "moved.md"], "Paths")


def files_are_written_with_the_end_of_their_commit_and_once(s: Scenario) -> None:
    store, commit = s.store, CommitRecord(new_id(), 1, s.branch().stored().id, NOON, "open", ())
    s.write(AddCommit(commit))
    end = EndCommit(OWNER, s.id, PutCommit(commit.id, "committed", b'{"n":1}', 0))
    put = _putting(commit=commit.id)
    _refused(store, ConflictError, [put, _putting()], end)
    _refused(store, NotFoundError, [put], EndCommit(OWNER, new_id(), end.change))
    same(store.commits(OWNER, s.id).commits, [commit], "The commit, still open")
    for _ in range(3):
        store.change_files([put, CountUses(OWNER, _PATH, 1)], end)
        same(_there(store).active, 1, "How often it was used")
    other = EndCommit(OWNER, s.id, PutCommit(commit.id, "committed", b'{"n":2}', 0))
    _refused(store, ConflictError, [_putting("late.md")], other)
    same(store.written_by(OWNER, commit.id), [Derived(OWNER, put.id, 1)], "What it has written")


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
    put = {owner: _put(store, owner=owner, commit=commit).id for owner in [*mine, *others]}
    same(store.owned_by(OWNER), mine, "Owners of files")
    written = {derived.owner: derived.file for derived in store.written_by(OWNER, commit)}
    same(written, {owner: put[owner] for owner in mine}, "What the commit has written of theirs")


def what_came_from_a_session_is_found_even_after_it_is_deleted(s: Scenario) -> None:
    store, here, there, message = s.store, s.id, new_id(), new_id()
    one, two = EvidenceRecord(OWNER, here, message), EvidenceRecord(OWNER, there, new_id())
    mine = _put(store, evidence=(one,)).id
    _put(store, uid=mine, number=2, evidence=in_order((one, two)))
    helper = _put(store, owner=AGENT, evidence=(EvidenceRecord(OWNER, there, here),)).id
    _put(store, "x.md", evidence=(EvidenceRecord(STRANGER, here, message),))
    first, both, helped = (
        Derived(OWNER, mine, 1),
        Derived(OWNER, mine, 2),
        Derived(AGENT, helper, 1),
    )
    for deleted in (False, True):
        same(store.delete_session(OWNER, here), not deleted, "Deleting the session")
        for session, about, expected in (
            (here, None, [first, both]),
            (there, None, [helped, both]),
            (None, None, [helped, first, both]),
            (here, message, [first, both]),
            (here, there, []),
        ):
            found = store.derived(OWNER, session=session, message=about)
            same(found, expected, f"From {session} and {about}")


def files_of_another_owner_are_not_reached(store: Store) -> None:
    change = _put(store)
    file = FileRecord(OWNER, change.id, _PATH, "preferences", NOON + 1, 0, _version())
    for owner in (
        STRANGER,
        AGENT,
        Owner("acme", "agent", "ada"),
        Owner("acme", "user", "ada", "ada"),
        Owner("other", "user", "ada"),
    ):
        same(store.find_file(owner, _PATH), None, "Another owner's file")
        empty("Their files", store.list_files(owner, ""), store.file_versions(owner, change.id))
        for harm in (
            RemoveFile(owner, change.id),
            RemoveVersions(owner, change.id, (1,)),
            CountUses(owner, _PATH, 1),
        ):
            store.change_files([harm])
        _refused(store, NotFoundError, [MoveFile(owner, change.id, "x.md", None)])
        same(_there(store), file, "It")
