"""Commits: entries are archived once, in order, with their uses, and finished once."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from sennit.errors import ConflictError, NotFoundError
from sennit.ids import new_id
from sennit.stores.base import Store
from sennit.stores.records.commits import (
    AddCommit,
    AddUses,
    ArchiveRecord,
    CommitRecord,
    PutCommit,
    UseRecord,
)
from sennit.stores.records.sessions import RemoveMessages
from sennit.testing.conformance.fixtures import (
    NOON,
    OWNER,
    STRANGER,
    StoreFixture,
    empty,
    ids,
    raises,
    same,
)


class _Archive:
    """A session with a branch, and commits of it."""

    def __init__(self, store: Store) -> None:
        self.scene, self.store = StoreFixture(store), store
        self.branch = self.scene.branch("main").id

    def say(self, *texts: str) -> tuple[UUID, ...]:
        return ids(self.scene.append(self.branch, *texts))

    def commit(self, number: int, *entries: UUID, uses: tuple[UUID, ...] = ()) -> CommitRecord:
        commit = self.record(number, *entries)
        self.scene.write(AddCommit(commit, uses))
        return commit

    def record(self, number: int, *entries: UUID) -> CommitRecord:
        return CommitRecord(
            new_id(), number, self.branch, NOON + number, "open", entries, b'{"a":1}'
        )

    def use(self, created: int = NOON, head: UUID | None = None) -> UseRecord:
        use = UseRecord(new_id(), self.branch, created, head, b'{"uri":"viking://user/x.md"}')
        self.scene.write(AddUses((use,)))
        return use

    def commits(self) -> list[CommitRecord]:
        return self.store.commits(OWNER, self.scene.id).commits

    def uses(self) -> list[UseRecord]:
        return self.store.commits(OWNER, self.scene.id).uses


def a_session_without_commits_has_none(store: Store) -> None:
    archive = _Archive(store)
    empty("Commits and uses", archive.commits(), archive.uses())
    same(store.open_commits(OWNER), [], "Open commits")
    same(store.find_commit(OWNER, new_id()), None, "A commit nobody made")


def commits_of_an_unknown_session_are_not_found(store: Store) -> None:
    raises(NotFoundError, lambda: store.commits(OWNER, new_id()), "Commits of no session")
    raises(NotFoundError, lambda: store.archived(OWNER, new_id(), 0), "Archives of no session")
    raises(NotFoundError, lambda: store.uses_of(OWNER, new_id(), None), "Uses of no session")


def parts_of_what_commits_hold_can_be_read_alone(store: Store) -> None:
    archive = _Archive(store)
    first, second, third = archive.say("one", "two", "three")
    commit, use = archive.record(1, second, first), archive.use()
    archive.scene.write(AddCommit(commit, (use.id,)))
    later, waiting = archive.commit(2, third), archive.use()
    archives = [
        ArchiveRecord(record.number, record.id, record.entries) for record in (commit, later)
    ]
    for after in range(4):
        same(store.archived(OWNER, archive.scene.id, after), archives[after:], f"Past {after}")
    bare = [replace(record, entries=()) for record in (commit, later)]
    same(store.commits_numbered(OWNER, archive.scene.id, [3, 2, 1]), bare, "Commits by number")
    same(store.commits_numbered(OWNER, archive.scene.id, []), [], "No commits")
    counted = [replace(use, commit=1)]
    for number, uses in ((1, counted), (2, []), (None, [waiting])):
        same(store.uses_of(OWNER, archive.scene.id, number), uses, f"Uses of {number}")


def a_commit_is_kept_as_it_was_given(store: Store) -> None:
    archive = _Archive(store)
    first, second, third = archive.say("one", "two", "three")
    commit = archive.commit(1, second, first)
    later = archive.commit(2, third)
    same(archive.commits(), [commit, later], "Commits")
    same(store.find_commit(OWNER, later.id), (archive.scene.id, later), "A commit by its id")
    pairs = [(archive.scene.id, commit.id), (archive.scene.id, later.id)]
    same(store.open_commits(OWNER), pairs, "Open commits")


def a_commit_made_again_changes_nothing(store: Store) -> None:
    archive = _Archive(store)
    entries, use = archive.say("one", "two"), archive.use()
    commit = archive.record(1, *entries)
    for _ in range(2):
        archive.scene.write(AddCommit(commit, (use.id,)))
    same(archive.commits(), [commit], "Commits")
    same(archive.uses(), [replace(use, commit=1)], "Uses")


def an_entry_is_archived_once(store: Store) -> None:
    archive = _Archive(store)
    one, two, three = archive.say("one", "two", "three")
    commit = archive.commit(1, one, two)
    raises(ConflictError, lambda: archive.commit(2, three, two), "An entry that is covered")
    same(archive.commits(), [commit], "Commits")


def numbers_of_commits_follow_one_another(store: Store) -> None:
    archive = _Archive(store)
    one, two = archive.say("one", "two")
    for wrong in (0, 2):
        raises(ConflictError, lambda n=wrong: archive.commit(n, one), f"Number {wrong}")
    archive.commit(1, one)
    for wrong in (1, 3):
        raises(ConflictError, lambda n=wrong: archive.commit(n, two), f"Number {wrong}")
    archive.commit(2, two)
    same([commit.number for commit in archive.commits()], [1, 2], "Numbers")


def entries_of_a_commit_must_be_there(store: Store) -> None:
    archive = _Archive(store)
    (one,) = archive.say("one")
    raises(NotFoundError, lambda: archive.commit(1, one, new_id()), "An unknown message")
    empty("Commits", archive.commits())


def uses_come_in_the_order_of_time(store: Store) -> None:
    archive = _Archive(store)
    (head,) = archive.say("one")
    late, early = archive.use(NOON + 9, head), archive.use(NOON + 1)
    same(archive.uses(), [early, late], "Uses")
    archive.scene.write(AddUses((early, late)))
    same(archive.uses(), [early, late], "Uses added again")


def a_use_is_counted_by_one_commit(store: Store) -> None:
    archive = _Archive(store)
    one, two = archive.say("one", "two")
    use, other = archive.use(NOON), archive.use(NOON + 1)
    archive.commit(1, one, uses=(use.id,))
    for wrong in (use.id, new_id()):
        raises(ConflictError, lambda w=wrong: archive.commit(2, two, uses=(w,)), "Such a use")
    same(archive.uses(), [replace(use, commit=1), other], "Uses")
    same(len(archive.commits()), 1, "Commits")


def a_commit_is_changed_by_who_saw_it_last(store: Store) -> None:
    archive = _Archive(store)
    commit = archive.commit(1, *archive.say("one"))
    step = PutCommit(commit.id, "open", b'{"b":2}', 0)
    done = PutCommit(commit.id, "committed", b'{"c":3}', 1)
    for change in (step, step, done, done):
        archive.scene.write(change)
    late = PutCommit(commit.id, "failed", b"{}", 1)
    raises(ConflictError, lambda: archive.scene.write(late), "A commit that was changed")
    unknown = replace(late, commit=new_id())
    raises(NotFoundError, lambda: archive.scene.write(unknown), "A commit nobody made")
    ended = replace(commit, state="committed", body=b'{"c":3}', version=2)
    same(archive.commits(), [ended], "Commits")
    same(store.open_commits(OWNER), [], "Open commits")


def an_erased_message_leaves_its_commit(store: Store) -> None:
    archive = _Archive(store)
    one, two, three = archive.say("one", "two", "three")
    commit = archive.commit(1, one, two, three)
    archive.scene.write(RemoveMessages((two,)))
    same(archive.commits(), [replace(commit, entries=(one, three))], "Commits")


def commits_go_with_their_session(store: Store) -> None:
    archive = _Archive(store)
    archive.use()
    commit = archive.commit(1, *archive.say("one"))
    store.delete_session(OWNER, archive.scene.id)
    same(store.find_commit(OWNER, commit.id), None, "A commit of a deleted session")
    same(store.open_commits(OWNER), [], "Open commits")
    StoreFixture(store, uid=archive.scene.id)
    empty("Commits and uses of a new one with its id", archive.commits(), archive.uses())


def commits_of_another_owner_are_not_seen(store: Store) -> None:
    archive = _Archive(store)
    commit = archive.commit(1, *archive.say("one"))
    same(store.find_commit(STRANGER, commit.id), None, "Another owner's commit")
    same(store.open_commits(STRANGER), [], "Another owner's open commits")
    raises(NotFoundError, lambda: store.commits(STRANGER, archive.scene.id), "A stranger")
    StoreFixture(store, STRANGER, archive.scene.id)
    change = PutCommit(commit.id, "failed", b"{}", 0)
    raises(NotFoundError, lambda: store.write(STRANGER, archive.scene.id, [change]), "A stranger")
    same(archive.commits(), [commit], "Commits")


def a_change_that_fails_takes_commits_back(store: Store) -> None:
    archive = _Archive(store)
    one, two = archive.say("one", "two")
    use = archive.use()
    commit = archive.commit(1, one)
    good = (
        AddCommit(archive.record(2, two), (use.id,)),
        PutCommit(commit.id, "committed", b"{}", 0),
        AddUses((replace(use, id=new_id()),)),
        RemoveMessages((one,)),
    )
    bad = RemoveMessages((new_id(),)), PutCommit(new_id(), "failed", b"{}", 0)
    for at in range(len(good) + 1):
        changes = *good[:at], *bad, *good[at:]
        raises(NotFoundError, lambda c=changes: archive.scene.write(*c), "A bad change")
        same(archive.commits(), [commit], f"Commits after a write that failed at its change {at}")
        same(archive.uses(), [use], f"Uses after a write that failed at its change {at}")


def uses_that_name_something_can_be_erased(store: Store) -> None:
    archive = _Archive(store)
    use = archive.use()
    other = replace(use, id=new_id(), body=b'{"uri":"viking://user/xx.md"}')
    archive.scene.write(AddUses((other,)))
    store.unname(STRANGER, ["viking://user/x.md"])
    same(archive.uses(), sorted((use, other), key=lambda use: use.id), "Uses of another owner")
    store.unname(OWNER, [])
    store.unname(OWNER, ["viking://user/é.md", "viking://user/x.md"])
    same(archive.uses(), [other], "Uses that name something else")


def uses_name_something_by_its_new_name(store: Store) -> None:
    archive = _Archive(store)
    use = archive.use()
    other = replace(use, id=new_id(), body=b'{"uri":"viking://user/xx.md"}')
    archive.scene.write(AddUses((other,)))
    store.rename(STRANGER, {"viking://user/x.md": "viking://user/y.md"})
    same(archive.uses(), sorted((use, other), key=lambda use: use.id), "Uses of another owner")
    store.rename(OWNER, {})
    store.rename(OWNER, {"viking://user/x.md": "viking://user/é.md"})
    renamed = replace(use, body=use.body.replace(b"x.md", "é.md".encode()))
    same(archive.uses(), sorted((renamed, other), key=lambda use: use.id), "Uses by a new name")


def commits_that_name_something_are_found(store: Store) -> None:
    archive = _Archive(store)
    for number, body in enumerate((b"{}", b'{"a":["viking://user/\xc3\xa9.md#one"]}'), 1):
        archive.scene.write(AddCommit(replace(archive.record(number), body=body)))
    naming = [(archive.scene.id, archive.commits()[1].id)]
    for texts, expected in (
        (["viking://user/x.md", "viking://user/é.md"], naming),
        (["user/é.md"], []),
        ([], []),
    ):
        same(store.commits_naming(OWNER, texts), expected, f"Commits that name {texts}")
        empty("Commits of another owner", store.commits_naming(STRANGER, texts))


def messages_are_read_by_their_ids(store: Store) -> None:
    archive = _Archive(store)
    one, two, _ = archive.say("one", "two", "three")
    stored = {one.id: one for one in store.load(OWNER, archive.scene.id).messages}
    actual = store.messages(OWNER, archive.scene.id, [two, new_id(), one])
    same(actual, [stored[two], stored[one]], "Messages")
    empty("No messages", store.messages(OWNER, archive.scene.id, []))
    empty("Another owner's", store.messages(STRANGER, archive.scene.id, [one]))
    empty("Another session's", store.messages(OWNER, new_id(), [one]))
