"""Messages: stored byte for byte, in order, once."""

from __future__ import annotations

from sennit.ids import new_id
from sennit.messages.codec import dumps
from sennit.stores.records.sessions import AddMessages, MessageRecord
from sennit.testing.conformance.fixtures import NOON, Scenario, message, messages, same


def _nested(depth: int) -> bytes:
    inner: object = "deep"
    for _ in range(depth):
        inner = {"d": [inner]}
    return dumps({"type": "instruction", "content": {"instruction": "", "context": inner}})


_TEXTS = {
    "every script": "🦜👩‍👩‍👧|שלום עולם|مرحبا|中文字|e\u0301 é|\u202eright to left|\ufeff|𝔘",
    "control characters": "\x00|a\x00b|\x1b[31m|\r\n\t|\x7f\x85\u2028",
    "SQL": "'; DROP TABLE messages; --|\" OR 1=1|%s ? :x $1 {}",
    "four megabytes": "0123456789abcdef" * (4 * 65536) + "|short",
}
_BODIES = (
    b'{ "type":"instruction",\n\t"content": {"instruction": "\\u00e9 \\/ \\" 1e5"} }',
    _nested(100),
)


def messages_come_back_byte_for_byte(s: Scenario) -> None:
    for what, texts in _TEXTS.items():
        records = messages(*texts.split("|"))
        same(
            list(s.beside().write(AddMessages(tuple(records))).load().messages.values()),
            records,
            what,
        )
    records = [MessageRecord(new_id(), NOON, body) for body in _BODIES]
    times = (0, 1, NOON, NOON + 1, 253_402_300_799_999_999)
    records += [MessageRecord(new_id(), time, message("x").body) for time in times]
    s.write(AddMessages(tuple(records)))
    same(list(s.load().messages.values()), records, "Bodies and times")


def messages_come_back_in_the_order_they_were_added(s: Scenario) -> None:
    backwards = messages(*map(str, range(50)))[::-1]
    for start in range(0, 50, 7):
        s.write(AddMessages(tuple(backwards[start : start + 7])))
    same(list(s.load().messages.values()), backwards, "Messages in order")


def adding_nothing_is_nothing(s: Scenario) -> None:
    same(s.write().heads, [], "Heads of an empty write")
    s.write(AddMessages(())).holds("")


def the_same_message_twice_is_kept_once(s: Scenario) -> None:
    s.add("ab").again().holds("ab")
    a, b = s.named.values()
    s.write(AddMessages((b, a, b)), s.adding("c"), AddMessages((s.named["c"], a))).holds("abc")


def one_id_in_two_sessions_is_two_messages(s: Scenario) -> None:
    other, there = message("there", s.add("a")["a"]), s.beside()
    there.write(AddMessages((other,)))
    same(s.holds("a").load().messages.keys(), there.load().messages.keys(), "The ids")
    same(list(there.load().messages.values()), [other], "The message of the other session")


def messages_on_no_branch_are_loaded_and_erased(s: Scenario) -> None:
    s.branch("main", "a").add("bc").holds("abc").erase("b").holds("ac").shows(main="a")
