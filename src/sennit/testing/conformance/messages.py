"""Messages: stored byte for byte, in order, once; erasure removes them from every branch."""

from __future__ import annotations

from dataclasses import replace

from sennit.errors import ConflictError, ExistsError
from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.base import Store
from sennit.stores.records.sessions import (
    AddBranch,
    AddMessages,
    Append,
    ChangeBranch,
    MessageRecord,
    RemoveBranch,
    RemoveMessages,
)
from sennit.testing.conformance.fixtures import (
    NOON,
    StoreFixture,
    branch,
    empty,
    ids,
    message,
    messages,
    raises,
    same,
    segment,
)


def _comes_back(store: Store, *records: MessageRecord) -> None:
    scene = StoreFixture(store)
    scene.write(AddMessages(records))
    same(list(scene.load().messages.values()), list(records), "Messages that came back")


def acknowledged_messages_come_back(store: Store) -> None:
    _comes_back(store, *messages("one", "two", "three"))


def messages_come_back_in_the_order_they_were_added(store: Store) -> None:
    scene = StoreFixture(store)
    records = messages(*map(str, range(50)))
    backwards = records[::-1]
    for start in range(0, 50, 7):
        scene.write(AddMessages(tuple(backwards[start : start + 7])))
    same(list(scene.load().messages), list(ids(backwards)), "Order of messages")


def adding_no_messages_is_nothing(store: Store) -> None:
    _comes_back(store)


def writing_no_changes_is_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    same(scene.write(), [], "Heads of an empty write")
    same(scene.load().messages, {}, "Messages after an empty write")


def the_same_message_twice_is_kept_once(store: Store) -> None:
    scene = StoreFixture(store)
    records = messages("one", "two")
    scene.write(AddMessages(tuple(records)))
    scene.write(AddMessages((*records, message("three"))))
    same(len(scene.load().messages), 3, "Messages after adding two of them again")


def the_same_message_twice_in_one_write_is_kept_once(store: Store) -> None:
    scene, one = StoreFixture(store), message("one")
    scene.write(AddMessages((one, one)), AddMessages((one,)))
    same(list(scene.load().messages.values()), [one], "A message added three times in one write")


def another_body_under_a_known_id_is_refused(store: Store) -> None:
    scene, one = StoreFixture(store), message("one")
    scene.write(AddMessages((one,)))
    other = AddMessages((message("two", one.id),))
    raises(ExistsError, lambda: scene.write(other), "Another body under the same id")
    same(list(scene.load().messages.values()), [one], "The message that was there")


def another_time_under_a_known_id_is_refused(store: Store) -> None:
    scene, one = StoreFixture(store), message("one")
    scene.write(AddMessages((one,)))
    other = AddMessages((MessageRecord(one.id, one.created + 1, one.body),))
    raises(ExistsError, lambda: scene.write(other), "Another time under the same id")


def bodies_come_back_byte_for_byte(store: Store) -> None:
    spaced = b'{ "type":"instruction",\n\t"content": {"instruction": "\\u00e9 \\/ \\" 1e5"} }'
    _comes_back(store, MessageRecord(new_id(), NOON, spaced))


def text_of_every_script_comes_back(store: Store) -> None:
    texts = [
        "🦜👩‍👩‍👧",
        "שלום עולם",
        "مرحبا",
        "中文字",
        "e\u0301 é",
        "\u202eright to left",
        "\ufeff",
        "𝔘",
    ]
    _comes_back(store, *messages(*texts))


def control_characters_come_back(store: Store) -> None:
    _comes_back(store, *messages("\x00", "a\x00b", "\x1b[31m", "\r\n\t", "\x7f\x85\u2028"))


def sql_in_a_message_is_only_text(store: Store) -> None:
    _comes_back(store, *messages("'; DROP TABLE messages; --", '" OR 1=1', "%s ? :x $1 {}"))


def a_body_of_four_megabytes_comes_back(store: Store) -> None:
    _comes_back(store, message("0123456789abcdef" * (4 * 65536)), message("short"))


def a_deeply_nested_body_comes_back(store: Store) -> None:
    inner: object = "deep"
    for _ in range(100):
        inner = {"d": [inner]}
    body = dumps({"type": "instruction", "content": {"instruction": "", "context": inner}})
    _comes_back(store, MessageRecord(new_id(), NOON, body))


def times_near_and_far_come_back_to_the_microsecond(store: Store) -> None:
    times = (0, 1, NOON, NOON + 1, 253_402_300_799_999_999)
    _comes_back(store, *(MessageRecord(new_id(), time, message("x").body) for time in times))


def one_id_in_two_sessions_is_two_messages(store: Store) -> None:
    here, there, one = StoreFixture(store), StoreFixture(store), message("here")
    other = message("there", one.id)
    here.write(AddMessages((one,)))
    there.write(AddMessages((other,)))
    same(here.load().messages, {one.id: one}, "The message of one session")
    same(there.load().messages, {one.id: other}, "The message of the other")


def messages_on_no_branch_are_loaded_too(store: Store) -> None:
    scene = StoreFixture(store)
    scene.branch("main", "shown")
    loose = scene.say("loose")[0]
    assert loose.id in scene.load().messages, "A message on no branch was not loaded."


def a_message_on_no_branch_can_be_erased(store: Store) -> None:
    scene = StoreFixture(store)
    gone, stays = scene.say("gone", "stays")
    scene.forget(gone)
    same(list(scene.load().messages), [stays.id], "Messages left")


def erasing_unknown_messages_is_nothing(store: Store) -> None:
    scene = StoreFixture(store)
    gone = scene.say("gone")[0]
    scene.forget(gone)
    scene.write(RemoveMessages((gone.id, new_id())))
    scene.write(RemoveMessages(()))
    same(scene.load().messages, {}, "Messages left")


def an_erased_message_leaves_every_branch(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcd")
    scene.append(scene.fork(main.id, "fork").id, "x")
    b = list(scene.load().messages.values())[1]
    scene.forget(b)
    same(scene.texts(), [*"acd"], "The branch")
    same(scene.texts("fork"), [*"acdx"], "The fork")
    assert b.id not in scene.load().messages, "An erased message was loaded."


def erasing_shortens_the_branch_that_holds_the_message(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    scene.forget(next(iter(scene.load().messages.values())))
    same(scene.stored(main.id).length, 2, "Length of the branch")
    two = scene.say("two")
    same(scene.write(Append(main.id, ids(two)))[0].length, 2, "The head before an append")
    same(scene.texts(), ["b", "c", "two"], "The branch")


def erasing_moves_the_cuts_behind_the_message(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcde")
    for at in range(1, 6):
        scene.append(scene.fork(main.id, f"at {at}", at=at).id, "x")
    scene.forget(list(scene.load().messages.values())[2])
    for at in range(1, 6):
        expected = [text for text in [*"abcde"][:at] if text != "c"]
        same(scene.texts(f"at {at}"), [*expected, "x"], f"The fork at {at}")


def erasing_reaches_through_forks_of_forks(store: Store) -> None:
    scene = StoreFixture(store)
    source = scene.branch("fork 0", "a", "b").id
    for n in range(1, 6):
        source = scene.fork(source, f"fork {n}").id
        scene.append(source, f"{n}")
    records = list(scene.load().messages.values())
    scene.forget(records[0], records[3])
    same(scene.texts("fork 5"), ["b", "1", "3", "4", "5"], "The last fork")
    same(scene.texts("fork 1"), ["b", "1"], "The first fork")


def branches_that_showed_an_erased_message_get_a_new_version(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    long, short = scene.fork(main.id, "long"), scene.fork(main.id, "short", at=1)
    other = scene.branch("other", "x")
    scene.forget(list(scene.load().messages.values())[1])
    branches = scene.load().branches
    for record in (main, long):
        grew = branches[record.id].version > record.version
        assert grew, f"{record.name!r} lost a message and kept its version."
    for record in (short, other):
        same(branches[record.id].version, 0, f"Version of {record.name!r}, which lost nothing")


def a_rewrite_that_missed_an_erasure_is_refused(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"ab")
    a, b = scene.load().messages.values()
    scene.forget(a)
    scene.append(main.id, "c")
    on = segment((b.id,))
    change = ChangeBranch(replace(main, segment=on.id), on)
    raises(ConflictError, lambda: scene.write(change), "A rewrite that missed an erasure")
    same(scene.texts(), ["b", "c"], "The branch")


def an_erased_system_message_leaves_its_branches(store: Store) -> None:
    scene = StoreFixture(store)
    rule, on = scene.say("be brief")[0], segment()
    main = branch("main", on, system=rule.id)
    scene.write(AddBranch(main, on))
    scene.forget(rule)
    record = scene.stored(main.id)
    same(record.system, None, "The system message")
    assert record.version > 0, "The branch lost its system message and kept its version."


def a_system_message_that_was_replaced_can_be_erased(store: Store) -> None:
    scene = StoreFixture(store)
    old, new = scene.say("be brief", "be long")
    on = segment()
    main = branch("main", on, system=old.id)
    scene.write(AddBranch(main, on))
    scene.write(ChangeBranch(replace(main, system=new.id)), RemoveMessages((old.id,)))
    same(list(scene.load().messages), [new.id], "Messages left")
    same(scene.stored(main.id).version, 1, "Version of the branch")


def all_messages_of_a_branch_can_be_erased(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abc")
    fork = scene.fork(main.id, "fork", at=2)
    scene.forget(*scene.load().messages.values())
    empty("The branches", scene.texts(), scene.texts("fork"))
    scene.append(fork.id, "x")
    same(scene.texts("fork"), ["x"], "The fork")


def messages_of_a_removed_branch_can_be_erased(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    all_ids = tuple(scene.load().messages)
    scene.write(RemoveBranch(main.id), RemoveMessages(all_ids))
    same(scene.load().messages, {}, "Messages left")


def messages_rewritten_away_can_be_erased(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two", "three")
    one, two, three = scene.load().messages.values()
    scene.rewrite(main.id, (one.id, three.id))
    scene.forget(two)
    same(scene.texts(), ["one", "three"], "The branch")
    assert two.id not in scene.load().messages, "An erased message was loaded."


def a_message_behind_every_cut_can_be_erased(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcde")
    records = list(scene.load().messages.values())
    scene.fork(main.id, "fork", at=2)
    scene.write(RemoveBranch(main.id))
    scene.forget(records[3])
    same(scene.texts("fork"), ["a", "b"], "The fork whose base held an erased message")
    assert records[3].id not in scene.load().messages, "An erased message was loaded."


def after_erasing_behind_a_cut_a_fork_goes_on(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", *"abcde")
    records = list(scene.load().messages.values())
    fork = scene.fork(main.id, "fork", at=2)
    scene.write(RemoveBranch(main.id), RemoveMessages((records[2].id, records[4].id)))
    scene.append(fork.id, "x")
    scene.fork(fork.id, "fork of the fork")
    same(scene.texts("fork of the fork"), ["a", "b", "x"], "A fork of the fork")
    view = scene.changes({})
    same(view.texts("fork"), ["a", "b", "x"], "The fork, through changes")


def an_erased_message_can_be_added_anew(store: Store) -> None:
    scene = StoreFixture(store)
    one = scene.say("one")[0]
    scene.forget(one)
    other = message("another", one.id)
    scene.write(AddMessages((other,)))
    same(scene.load().messages, {one.id: other}, "The message added anew")


def a_message_can_be_taken_from_its_branch_and_erased_in_one_write(store: Store) -> None:
    scene = StoreFixture(store)
    main = scene.branch("main", "one", "two")
    one, two = scene.load().messages
    on = segment((two,))
    change = ChangeBranch(replace(main, segment=on.id), on)
    scene.write(change, RemoveMessages((one,)))
    same(scene.texts(), ["two"], "The branch")


def messages_may_be_added_and_appended_in_one_write(store: Store) -> None:
    scene, records, on = StoreFixture(store), messages("one", "two"), segment()
    main = branch("main", on)
    scene.write(AddMessages(tuple(records)), AddBranch(main, on), Append(main.id, ids(records)))
    same(scene.texts(), ["one", "two"], "The branch")
