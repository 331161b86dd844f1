"""Histories: appends, forks, rewrites and erasures, and what branches show after them."""

from __future__ import annotations

from dataclasses import replace

from sennit.errors import ConflictError, ExistsError, NotFoundError, ValidationError
from sennit.ids import new_id
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    BranchHead,
    ChangeBranch,
    RemoveBranch,
    RemoveMessages,
    SegmentRecord,
)
from sennit.testing.conformance.fixtures import Scenario, branch, empty, message, same, segment


def _heads(s: Scenario, *expected: int) -> Scenario:
    """Assert the positions that the last write's appends were given."""
    same([head.length for head in s.heads], list(expected), "The heads before the appends")
    return s


def an_append_goes_to_the_end(s: Scenario) -> None:
    s.branch("main", "a").append("main", "bc").append("main", "d").shows(main="abcd")
    same((s.stored().length, s.stored().version), (4, 0), "Length and version")


def an_append_gives_the_head_before_it(s: Scenario) -> None:
    main = s.branch("main", "a").stored()
    same(s.append("main", "bc").heads, [BranchHead(main.id, main.segment, 1, 0)], "The head")
    same(s.append("main", "").heads, [BranchHead(main.id, main.segment, 3, 0)], "Of no entries")
    s.shows(main="abc")


def each_append_of_a_write_gives_its_own_head(s: Scenario) -> None:
    main, side = (
        s.branch(name, text).stored(name).id for name, text in (("main", ""), ("side", "x"))
    )
    s.add("abc").write(
        Append(main, s.ids("ab")), s.adding("d"), Append(side, s.ids("a")), Append(main, s.ids("c"))
    )
    heads = [(head.branch, head.length) for head in s.heads]
    same(heads, [(main, 0), (side, 1), (main, 2)], "Heads, in the order of appends")


def an_append_repeated_after_a_lost_acknowledgement_is_found_again(s: Scenario) -> None:
    s.branch("main", "a").append("main", "bc").again().shows(main="abc")
    _heads(s.append("main", "d").append("main", "bc"), 1).shows(main="abcd")
    main = s.stored().id
    s.write(s.adding("efg"), Append(main, s.ids("e")), Append(main, s.ids("fg")))
    _heads(s.again(), 4, 5).shows(main="abcdefg")


def a_repeated_append_need_not_stand_together(s: Scenario) -> None:
    _heads(s.branch("main", "abcd").append("main", "bd"), 1).shows(main="abcd")


def an_append_of_what_a_fork_shares_already_adds_nothing(s: Scenario) -> None:
    s.branch("main", "ab").fork("main", "fork").append("fork", "c").append("fork", "ab")
    length = s.shows(fork="abc").heads[0].length
    assert length < 0, f"They begin below the fork's own segment, but the head says {length}."


def a_new_message_appended_twice_in_one_write_stands_once(s: Scenario) -> None:
    main = s.branch("main", "a").stored().id
    s.write(s.adding("b"), Append(main, s.ids("b")), Append(main, s.ids("b"))).shows(main="ab")


def a_fork_may_append_what_its_source_holds_behind_the_cut(s: Scenario) -> None:
    s.branch("main", "abcd").fork("main", "fork", 2)
    _heads(s.append("fork", "d"), 0).shows(fork="abd", main="abcd")


def one_message_may_stand_on_many_branches(s: Scenario) -> None:
    s.branch("one", "a").branch("two", "a").branch("three", "ba").shows(
        one="a", two="a", three="ba"
    )


def an_append_lands_although_the_branch_was_changed_meanwhile(s: Scenario) -> None:
    main = s.branch("main", "a").stored()
    s.change("main", resources=frozenset({"gpt"})).append("main", "b").shows(main="ab")
    same(s.heads, [BranchHead(main.id, main.segment, 1, 1)], "The head, with the new version")


def an_append_that_expects_another_end_is_refused(s: Scenario) -> None:
    main = s.branch("main", "a").stored()
    expected = (s.adding("b"), Append(main.id, s.ids("b"), (main.segment, 1)))
    s.append("main", "x").refuses(ConflictError, *expected).shows(main="ax")
    landed = (s.adding("c"), Append(main.id, s.ids("c"), (main.segment, 2)))
    s.write(*landed).append("main", "d").write(*landed).shows(main="axcd")
    late = (s.adding("e"), Append(main.id, s.ids("e"), (main.segment, 4)))
    s.rewrite("main", "axcd").refuses(ConflictError, *late).shows(main="axcd")


def an_append_after_a_rewrite_goes_to_the_new_history(s: Scenario) -> None:
    s.branch("main", "ab").rewrite("main", "b").append("main", "c").shows(main="bc")
    same(s.heads, [BranchHead(s.stored().id, s.stored().segment, 1, 1)], "The head")
    s.append("main", "a").shows(main="bca")


def a_fork_shows_the_history_of_its_source_and_copies_no_entries(s: Scenario) -> None:
    fork = s.branch("main", "abc").fork("main", "fork").shows(fork="abc").stored("fork")
    same((s.load().segments[fork.segment].entries, fork.length), ((), 0), "Entries of its own")


def a_fork_and_its_source_grow_apart(s: Scenario) -> None:
    s.branch("main", "a").fork("main", "fork").append("main", "b").append("fork", "c")
    s.shows(main="ab", fork="ac")


def a_fork_may_begin_anywhere(s: Scenario) -> None:
    s.branch("main", "abcd")
    for at in range(5):
        s.fork("main", f"at{at}", at).shows(**{f"at{at}": "abcd"[:at]})


def a_fork_of_a_fork_may_begin_in_what_they_share(s: Scenario) -> None:
    s.branch("main", "abcd").fork("main", "fork", 3).append("fork", "xy")
    s.fork("fork", "inside", 2).fork("fork", "across", 4).shows(inside="ab", across="abcx")


def a_fork_may_bring_messages_of_its_own(s: Scenario) -> None:
    on = segment(s.branch("main", "ab").add("x").ids("x"), s.stored().segment, 1)
    s.write(AddBranch(branch("fork", on), on)).shows(fork="ax", main="ab")


def _fork_as_seen(s: Scenario, name: str) -> AddBranch:
    """Return a fork after the first message of main, based on its current version."""
    source = s.stored()
    change = s.forking("main", name, 1, metadata={"forked_from": {"branch_id": str(source.id)}})
    return AddBranch(change.branch, change.segment, source.version)


def a_fork_of_a_branch_that_others_added_to_is_made(s: Scenario) -> None:
    change = _fork_as_seen(s.branch("main", "ab"), "fork")
    s.append("main", "c").write(change).shows(fork="a")


def a_fork_of_a_branch_that_others_changed_is_refused(s: Scenario) -> None:
    made = _fork_as_seen(s.branch("main", "abc"), "made")
    late = _fork_as_seen(s.write(made), "late")
    s.erase("a").refuses(ConflictError, late).write(made)
    same({one.name for one in s.load().branches.values()}, {"main", "made"}, "The branches")


def a_fork_of_a_branch_that_others_removed_is_refused(s: Scenario) -> None:
    late = _fork_as_seen(s.branch("main", "abc").fork("main", "other"), "late")
    s.remove("main").refuses(NotFoundError, late)


def rewriting_the_source_leaves_the_fork(s: Scenario) -> None:
    s.branch("main", "abc").fork("main", "fork", 2).rewrite("main", "c").shows(main="c", fork="ab")
    s.rewrite("fork", "ba").shows(main="c", fork="ba")


def removing_the_source_leaves_the_fork_until_it_is_removed_too(s: Scenario) -> None:
    s.branch("main", "abc").fork("main", "fork", 2).remove("main").append("fork", "x")
    same(len(s.shows(fork="abx").load().segments), 2, "Segments the fork needs")
    same(len(s.remove("fork").load().segments), 0, "Segments that nobody needs")


def many_forks_of_one_source_are_kept_apart(s: Scenario) -> None:
    base = s.branch("main", "a").add(map(str, range(100))).stored().segment
    parts = [segment(s.ids([f"{n}"]), base, 1) for n in range(100)]
    s.write(*(AddBranch(branch(f"fork{n}", on), on) for n, on in enumerate(parts)))
    s.shows(**{f"fork{n}": f"a{n}" for n in range(100)})


def a_rewritten_history_takes_the_place_of_the_old(s: Scenario) -> None:
    before = s.branch("main", "abc").stored()
    s.rewrite("main", "ca").again().shows(main="ca")
    after = s.stored()
    same(after, replace(before, segment=after.segment, length=2, version=1), "The branch")
    same(list(s.load().segments), [after.segment], "Segments that are needed")
    s.append("main", "d").write(s.rewriting("main", "")).shows(main="")


def a_history_can_be_rewritten_on_top_of_the_old_one(s: Scenario) -> None:
    s.branch("main", "abcd").rewrite("main", "d", keep=2).shows(main="abd")


def a_history_can_be_rewritten_many_times(s: Scenario) -> None:
    s.branch("main", "abcde")
    for n in range(20):
        s.rewrite("main", ("abcde" * 2)[n % 5 + 1 : n % 5 + 6])
    s.shows(main="abcde")
    same((s.stored().version, len(s.load().segments)), (20, 1), "Version and segments")


def a_repeated_rewrite_keeps_what_was_appended_since(s: Scenario) -> None:
    change = s.branch("main", "ab").rewriting("main", "b")
    s.write(change).append("main", "c").write(change).shows(main="bc")
    same(s.stored().version, 1, "Its version")


def a_rewrite_that_missed_something_is_refused(s: Scenario) -> None:
    for at, missed in enumerate(
        (
            lambda: s.append("main", "c"),
            lambda: s.rewrite("main", "ab"),
            lambda: s.erase("a").append("main", "c"),
            lambda: s.change("main", resources=frozenset({"gpt"})),
        )
    ):
        late = s.branch("main", "ab").rewriting("main", "b")
        missed()
        s.refuses(ConflictError, late).rename("main", f"before {at}")


class _Stacked:
    """A branch "main" with "abc" in one segment and "de" in a segment on top of it."""

    def __init__(self, s: Scenario) -> None:
        self.s, self.lower = s, s.branch("main", "abc").stored().segment
        self.upper = s.rewrite("main", "", keep=3).append("main", "de").stored().segment

    def rewriting(self, texts: str, **fields: object) -> ChangeBranch:
        """Return a rewrite that puts `texts` before the entries of the upper segment."""
        below = segment(self.s.ids(texts))
        above = SegmentRecord(new_id(), below.id, len(texts), (), self.upper)
        above = replace(above, **fields)  # pyright: ignore[reportArgumentType]
        return ChangeBranch(replace(self.s.stored(), segment=above.id), below, (above,))


def a_rewrite_takes_over_what_comes_after_it(s: Scenario) -> None:
    stacked = _Stacked(s)
    known = {uid: len(part.entries) for uid, part in s.load().segments.items()}
    change = stacked.rewriting("ca")
    s.write(change).again().shows(main="cade")
    main = s.stored()
    same((main.segment, main.length), (change.above[0].id, 2), "The segment it ends with")
    same((main.version, len(s.load().segments)), (2, 2), "Version and segments")
    same(s.changes(known).texts("main"), list("cade"), "The branch, through changes")
    s.append("main", "f").shows(main="cadef")


def a_fork_keeps_what_a_rewrite_takes_over(s: Scenario) -> None:
    stacked = _Stacked(s)
    s.fork("main", "fork").fork("main", "part", 4).write(stacked.rewriting("b"))
    s.append("main", "f").append("fork", "g").append("part", "h")
    s.shows(main="bdef", fork="abcdeg", part="abcdh")


def one_may_be_taken_over_again_and_again(s: Scenario) -> None:
    stacked = _Stacked(s)
    for texts in ("ab", "b", "", "cba"):
        change = stacked.rewriting(texts)
        s.write(change).shows(main=texts + "de")
        stacked.upper = change.above[0].id
    same(len(s.load().segments), 2, "Segments")


def what_cannot_be_taken_over_changes_nothing(s: Scenario) -> None:
    stacked = _Stacked(s)
    s.refuses(NotFoundError, stacked.rewriting("b", taken=new_id()))
    s.refuses(NotFoundError, stacked.rewriting("b", base=new_id()))
    s.refuses(ValidationError, stacked.rewriting("b", offset=2))
    s.refuses(ValidationError, stacked.rewriting("b", offset=-1))
    s.refuses(ExistsError, stacked.rewriting("b", id=stacked.lower))
    late, made = stacked.rewriting("b"), stacked.rewriting("b")
    s.write(made)
    on = segment((), stacked.upper, 4)
    s.refuses(NotFoundError, AddBranch(branch("late", on), on))
    s.append("main", "f").refuses(ConflictError, late).shows(main="bdef")


def a_message_is_erased_from_what_was_taken_over(s: Scenario) -> None:
    stacked = _Stacked(s)
    s.fork("main", "fork", 4).write(stacked.rewriting("ba"))
    s.fork("main", "late", 3).append("late", "x").erase("bd").shows(main="ae", fork="ac", late="ax")
    s.append("fork", "y").shows(fork="acy")


def an_erased_message_leaves_every_branch(s: Scenario) -> None:
    s.branch("main", "abcd").fork("main", "fork").append("fork", "x").erase("b")
    s.shows(main="acd", fork="acdx").holds("acdx")


def erasing_shortens_the_branch_that_holds_the_message(s: Scenario) -> None:
    same(s.branch("main", "abc").erase("a").stored().length, 2, "Length of the branch")
    _heads(s.append("main", "d"), 2).shows(main="bcd")


def erasing_moves_the_cuts_behind_the_message(s: Scenario) -> None:
    s.branch("main", "abcde")
    for at in range(1, 6):
        s.fork("main", f"at{at}", at).append(f"at{at}", "x")
    s.erase("c").shows(at1="ax", at2="abx", at3="abx", at4="abdx", at5="abdex")


def erasing_reaches_through_forks_of_forks(s: Scenario) -> None:
    s.branch("fork0", "ab")
    for n in range(1, 6):
        s.fork(f"fork{n - 1}", f"fork{n}").append(f"fork{n}", f"{n}")
    s.erase("a2").shows(fork5="b1345", fork1="b1")


def branches_that_showed_an_erased_message_get_a_new_version(s: Scenario) -> None:
    s.branch("main", "abc").fork("main", "long").fork("main", "short", 1).branch("other", "x")
    s.change("other", system=s["b"]).erase("b")
    versions = {one.name: one.version for one in s.load().branches.values()}
    assert versions["main"] > 0 < versions["long"], f"Branches that lost a message: {versions}"
    assert versions["other"] > 1, f"A branch that lost its system message: {versions}"
    same((versions["short"], s.stored("other").system), (0, None), "The other two")


def a_message_can_be_erased_with_the_last_that_showed_it(s: Scenario) -> None:
    s.branch("main", "abcd").fork("main", "fork", 1)
    s.write(s.rewriting("main", "bcd"), RemoveMessages(s.ids("a"))).shows(main="bcd", fork="")
    s.change("fork", system=s["b"])
    s.write(s.changing("fork", system=s["c"]), RemoveMessages(s.ids("b"))).shows(main="cd")
    s.write(RemoveBranch(s.stored().id), RemoveMessages(s.ids("d")))
    same(list(s.load().messages), [s["c"]], "Messages left")


def all_messages_of_a_branch_can_be_erased(s: Scenario) -> None:
    s.branch("main", "abc").fork("main", "fork", 2).erase("abc").shows(main="", fork="")
    s.append("fork", "x").shows(main="", fork="x")


def after_erasing_behind_a_cut_a_fork_goes_on(s: Scenario) -> None:
    s.branch("main", "abcde").fork("main", "fork", 2).remove("main").erase("ce").append("fork", "x")
    s.fork("fork", "twice").shows(fork="abx", twice="abx").holds("abdx")
    same(s.changes({}).texts("fork"), list("abx"), "The fork, through changes")


def an_erased_message_can_be_added_anew(s: Scenario) -> None:
    other = message("other", s.add("a")["a"])
    s.erase("a").write(AddMessages((other,)))
    same(s.load().messages, {other.id: other}, "The message added anew")


def erasing_unknown_messages_is_nothing(s: Scenario) -> None:
    s.add("a").write(RemoveMessages((new_id(),))).write(RemoveMessages(())).holds("a")
    gone = s["a"]
    s.erase("a").write(RemoveMessages((gone,)))
    empty("Messages left", s.load().messages)


def a_refused_write_can_be_made_right_and_repeated(s: Scenario) -> None:
    good = s.branch().adding("a"), Append(s.stored().id, s.ids("a"))
    s.refuses(NotFoundError, *good, RemoveBranch(new_id())).write(*good)
    _heads(s, 0).shows(main="a")
    change = s.rewriting("main", "")
    s.refuses(NotFoundError, change, RemoveBranch(new_id())).append("main", "b").shows(main="ab")
    assert change.segment is not None
    s.write(ChangeBranch(replace(change.branch, length=2), change.segment)).shows(main="")


def a_branch_can_be_added_appended_to_and_changed_in_one_write(s: Scenario) -> None:
    on = segment()
    main = branch("main", on)
    granted = replace(main, resources=frozenset({"gpt"}))
    s.write(s.adding("a"), AddBranch(main, on), Append(main.id, s.ids("a")), ChangeBranch(granted))
    same(s.stored(), replace(granted, length=1, version=1), "The branch")
