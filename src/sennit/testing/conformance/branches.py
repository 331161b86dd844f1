"""Branches: fields, names, and optimistic locking of changes."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from hashlib import sha512

from sennit.errors import ConflictError, ExistsError, SennitError
from sennit.stores.records.sessions import (
    MAX_NAME_BYTES,
    AddBranch,
    ChangeBranch,
    RemoveBranch,
    RenameBranch,
)
from sennit.testing.conformance.fixtures import NOON, Scenario, branch, same, segment

_NOTHING: frozenset[str] = frozenset()
_GPT = frozenset({"gpt"})


def _names(s: Scenario) -> list[str]:
    return [record.name for record in s.load().branches.values()]


def a_branch_comes_back_as_it_was(s: Scenario) -> None:
    on = segment(s.add("ra").ids("a"))
    full = branch(
        "main",
        on,
        system=s["r"],
        created=NOON + 7,
        resources=frozenset({"gpt", "clau;de"}),
        capabilities=frozenset({"naïve"}),
        metadata={"color": "red", "list": [1, {"a": None}]},
    )
    bare, never = segment(), segment()
    plain = branch("plain", bare)
    for record, tail in (
        (full, on),
        (plain, bare),
        (branch("never", never, resources=None, capabilities=None), never),
    ):
        s.write(AddBranch(record, tail))
        same(s.stored(record.name), record, "The branch")
        same(s.load().segments[tail.id], tail, "Its segment")
    s.change("never", resources=_NOTHING, capabilities=_NOTHING)
    same(s.stored("never").resources, _NOTHING, "Grants that were given, but empty")


def branches_are_given_by_time_of_creation_then_by_id(s: Scenario) -> None:
    for name, created in (("late", 30), ("early", 10), ("middle", 20)):
        s.branch(name, created=NOON + created)
    same(_names(s), ["early", "middle", "late"], "Order of branches")
    at_once = [s.branch(f"b{n}").stored(f"b{n}").id for n in (3, 1, 2)]
    same(list(s.load().branches)[:3], sorted(at_once), "Order of branches of one moment")


def branch_names_may_hold_anything(s: Scenario) -> None:
    long = "".join(sha512(f"{n}".encode()).hexdigest() for n in range(16))[:MAX_NAME_BYTES]
    names = ["'; DROP TABLE branches; --", "a'b\"c`d", "", " ", "naïve 🦜", long, "%_*?", "A", "a"]
    for name in names:
        s.branch(name, [f"on {name}"])
    for name in names:
        same(s.texts(name), [f"on {name}"], f"The branch {name:.40}")


def a_name_that_is_no_unicode_is_refused_or_kept(s: Scenario) -> None:
    accepted = ["main"]
    s.branch("main")
    for name in ("lone \ud800 surrogate", "a NUL \x00 inside"):
        with suppress(SennitError):
            s.branch(name)
            accepted.append(name)
    same(sorted(_names(s)), sorted(accepted), "The branches that were accepted")


def sessions_may_have_branches_of_one_name_and_id(s: Scenario) -> None:
    on = segment()
    main, there = branch("main", on), s.beside()
    for scene in (s, there):
        scene.write(AddBranch(main, on))
    s.append("main", "a").shows(main="a")
    there.shows(main="").append("main", "b").shows(main="b")


def a_branch_added_again_keeps_what_it_has_since(s: Scenario) -> None:
    on = segment()
    change = AddBranch(branch("main", on), on)
    s.write(change).again().append("main", "a").change("main", resources=_GPT)
    s.write(change).shows(main="a")
    same((_names(s), s.stored().resources), (["main"], _GPT), "The branches and grants")


def changing_a_branch_record_in_hand_changes_nothing_in_the_store(s: Scenario) -> None:
    on = segment()
    main = branch("main", on, metadata={"list": [1]})
    s.write(AddBranch(main, on))
    for record in (main, s.stored(), s.changes({}).branches[main.id]):
        record.metadata["list"].append(2)
    same(s.stored().metadata, {"list": [1]}, "Metadata of the branch")


def a_removed_branch_is_gone_and_its_messages_stay(s: Scenario) -> None:
    s.branch("gone", "a").branch("stays", "b").remove("gone").shows(stays="b").holds("ab")
    same(_names(s), ["stays"], "The branches")


def the_name_of_a_removed_branch_is_free(s: Scenario) -> None:
    s.branch("main", "a").remove("main").branch("main", "b").shows(main="b")
    on = segment()
    s.write(RemoveBranch(s.stored().id), AddBranch(branch("main", on), on)).shows(main="")


def a_branch_gets_other_grants_and_another_system_message(s: Scenario) -> None:
    main = s.branch("main", "a").add("r").stored()
    wanted = replace(main, resources=_GPT, capabilities=frozenset({"Answer"}), system=s["r"])
    s.write(ChangeBranch(wanted))
    same(s.stored(), replace(wanted, version=1), "The branch with its grants")
    s.write(ChangeBranch(replace(main, version=1)))
    same(s.stored(), replace(main, version=2), "The branch without them again")


def a_change_never_touches_name_time_and_metadata(s: Scenario) -> None:
    main = s.branch("main", metadata={"color": "red"}).stored()
    s.change("main", name="other", created=1, metadata={}, resources=_GPT)
    same(s.stored(), replace(main, resources=_GPT, version=1), "The branch")


def a_branch_gets_another_name_and_keeps_all_else(s: Scenario) -> None:
    main = s.branch("main", "a").stored()
    for name in ("Bö'b\n", "", "main", "'; DROP TABLE branches; --", "x" * 1000):
        s.write(RenameBranch(main.id, name)).again()
        same(s.stored(name), replace(main, name=name), "The branch under another name")
        same(s.changes({main.segment: 1}).branches[main.id].name, name, "Its name in changes")
    same(s.texts("x" * 1000), ["a"], "What it says")


def a_name_that_was_given_up_is_free(s: Scenario) -> None:
    s.branch("main", "a").rename("main", "old").branch("main", "b").shows(old="a", main="b")
    s.refuses(ExistsError, RenameBranch(s.stored("old").id, "main"))


def two_branches_swap_their_names_in_one_write(s: Scenario) -> None:
    s.branch("one", "1").branch("two", "2")
    one, two = s.stored("one").id, s.stored("two").id
    s.write(RenameBranch(one, "x"), RenameBranch(two, "one"), RenameBranch(one, "two"))
    s.shows(one="2", two="1")


def renames_and_appends_stand_in_the_way_of_no_other_change(s: Scenario) -> None:
    main = s.branch("main", "a").stored()
    late = s.changing("main", resources=_GPT)
    s.rename("main", "other").append("other", "b").write(late).rename("other", "third")
    expected = replace(main, name="third", length=2, resources=_GPT, version=1)
    same(s.shows(third="ab").stored("third"), expected, "The branch")


def a_change_from_an_old_version_is_refused(s: Scenario) -> None:
    mine = s.branch("main", "a").changing("main", resources=frozenset({"mine"}))
    theirs = s.changing("main", resources=_GPT)
    s.write(theirs).refuses(ConflictError, mine)
    before = s.stored()
    # Both are safe: a writer who is refused refreshes, and finds its change made.
    with suppress(ConflictError):
        s.write(theirs)
    same(s.stored(), before, "The branch after the same change once more")
