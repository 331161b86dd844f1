"""Commits: entries are archived once, in order, with their uses, and finished once."""

from __future__ import annotations

from msgspec.structs import replace

from sennit.errors import ConflictError
from sennit.ids import new_id
from sennit.stores.records.commits import (
    AddCommit,
    AddUses,
    ArchiveRecord,
    CommitRecord,
    CommitsRecord,
    PutCommit,
    UseRecord,
)
from sennit.testing.conformance.fixtures import NOON, OWNER, STRANGER, Scenario, empty, same

_X = "viking://user/x.md"


def _commit(s: Scenario, number: int, texts: str, *uses: UseRecord) -> CommitRecord:
    """Commit messages of the branch "main"; repeating it changes nothing."""
    branch, body = s.stored().id, b'{"a":1}'
    commit = CommitRecord(new_id(), number, branch, NOON + number, "open", s.ids(texts), body)
    s.write(AddCommit(commit, tuple(use.id for use in uses))).again()
    return commit


def _use(s: Scenario, created: int = NOON, uri: str = _X, head: str | None = None) -> UseRecord:
    at = None if head is None else s[head]
    use = UseRecord(new_id(), s.stored().id, created, at, f'{{"uri":"{uri}"}}'.encode())
    s.write(AddUses((use,))).again()
    return use


def _stored(s: Scenario, commits: list[CommitRecord], uses: list[UseRecord]) -> None:
    """Assert the commits and uses of the session."""
    uses = sorted(uses, key=lambda use: (use.created, use.id))
    same(s.store.commits(OWNER, s.id), CommitsRecord(commits, uses), "Commits and uses")


def commits_and_uses_are_kept_as_they_were_given(s: Scenario) -> None:
    store = s.branch("main", "abc").store
    _stored(s, [], [])
    empty("Open commits", store.open_commits(OWNER))
    same(store.find_commit(OWNER, new_id()), None, "A commit nobody made")
    late, early = _use(s, NOON + 9, head="a"), _use(s, NOON + 1)
    first = _commit(s, 1, "ba", late)
    second = _commit(s, 2, "c")
    counted = replace(late, commit=1)
    _stored(s, [first, second], [early, counted])
    same(store.find_commit(OWNER, second.id), (s.id, second), "A commit by its id")
    same(store.open_commits(OWNER), [(s.id, first.id), (s.id, second.id)], "Open commits")
    archives = [ArchiveRecord(one.number, one.id, one.entries) for one in (first, second)]
    for after in range(4):
        same(store.archived(OWNER, s.id, after), archives[after:], f"Archives past {after}")
    bare = [replace(one, entries=()) for one in (first, second)]
    same(store.commits_numbered(OWNER, s.id, [3, 2, 1]), bare, "Commits by number")
    empty("No commits", store.commits_numbered(OWNER, s.id, []))
    for number, uses in ((1, [counted]), (2, []), (None, [early])):
        same(store.uses_of(OWNER, s.id, number), uses, f"Uses of {number}")


def a_commit_is_changed_by_who_saw_it_last(s: Scenario) -> None:
    commit = _commit(s.branch("main", "a"), 1, "a")
    for change in (
        PutCommit(commit.id, "open", b'{"b":2}', 0),
        PutCommit(commit.id, "committed", b'{"c":3}', 1),
    ):
        s.write(change).again()
    s.refuses(ConflictError, PutCommit(commit.id, "failed", b"{}", 1))
    _stored(s, [replace(commit, state="committed", body=b'{"c":3}', version=2)], [])
    same(s.store.open_commits(OWNER), [], "Open commits")


def an_erased_message_leaves_its_commit(s: Scenario) -> None:
    commit = _commit(s.branch("main", "abc"), 1, "abc")
    _stored(s.erase("b"), [replace(commit, entries=s.ids("ac"))], [])


def uses_that_name_something_can_be_renamed_and_erased(s: Scenario) -> None:
    use, other = _use(s.branch()), _use(s, uri="viking://user/xx.md")
    s.store.rename(STRANGER, {_X: "viking://user/y.md"})
    s.store.unname(STRANGER, [_X])
    s.store.rename(OWNER, {})
    s.store.unname(OWNER, [])
    _stored(s, [], [use, other])
    s.store.rename(OWNER, {_X: "viking://user/é.md"})
    _stored(s, [], [replace(use, body=use.body.replace(b"x.md", "é.md".encode())), other])
    s.store.unname(OWNER, ["viking://user/é.md", _X])
    _stored(s, [], [other])
    s.store.erase_uses(STRANGER, ["viking://user/xx.md"])
    _stored(s, [], [other])
    s.store.erase_uses(OWNER, ["viking://user/xx.md"])
    _stored(s, [], [])


def commits_that_name_something_are_found(s: Scenario) -> None:
    s.branch()
    for number, body in enumerate((b"{}", b'{"a":["viking://user/\xc3\xa9.md#one"]}'), 1):
        naming = replace(_commit(s, 2 * number - 1, ""), id=new_id(), number=2 * number, body=body)
        s.write(AddCommit(naming))
        expected = [(s.id, naming.id)] if number == 2 else []
        for texts, found in (([_X, "viking://user/é.md"], expected), (["user/é.md"], []), ([], [])):
            same(s.store.commits_naming(OWNER, texts), found, f"Commits that name {texts}")
            empty("Commits of another owner", s.store.commits_naming(STRANGER, texts))


def messages_are_read_by_their_ids(s: Scenario) -> None:
    b, a = (s.add("abc").named[text] for text in "ba")
    same(s.store.messages(OWNER, s.id, [b.id, new_id(), a.id]), [b, a], "Messages")
    empty("No messages", s.store.messages(OWNER, s.id, []))
