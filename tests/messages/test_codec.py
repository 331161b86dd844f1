"""The codec: exact for plain data, bounded in depth and size, and deaf to all that is not JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sennit import CodecError, SennitError
from sennit.messages import codec
from sennit.messages.codec import dumps, loads
from tests.strategies import json_values, same


def named(value: Any) -> str:
    return type(value).__name__


@given(json_values)
def test_plain_data_survives_exactly(value: Any) -> None:
    assert same(loads(dumps(value)), value)
    assert same(loads(dumps(value).decode()), value)


@given(json_values)
def test_what_is_written_is_one_line_that_any_json_reader_understands(value: Any) -> None:
    written = dumps(value)
    assert b"\n" not in written
    assert same(json.loads(written), value)


@given(json_values)
def test_what_any_json_writer_wrote_is_understood(value: Any) -> None:
    assert same(loads(json.dumps(value)), value)
    assert same(loads(json.dumps(value, indent=2, ensure_ascii=False)), value)


def test_keys_keep_their_order() -> None:
    assert dumps({"b": 1, "a": 2}) == b'{"b":1,"a":2}'


def test_the_last_of_two_equal_keys_counts() -> None:
    assert loads('{"a":1,"a":2}') == {"a": 2}


@pytest.mark.parametrize(
    "data",
    [
        "",
        " ",
        "{",
        "[1,]",
        "{'a':1}",
        "{a:1}",
        "nul",
        "NaN",
        "Infinity",
        "-Infinity",
        "1e999",
        "01",
        "1" * 5000,
        "[-" + "1" * 5000 + "]",
        '"\n"',
        '"\\x"',
        '"\\ud800"',
        '"\\udc00\\ud800"',
        '"\ud800"',
        "{} {}",
        "/* */ {}",
        b"\xff",
        b'"\xff"',
        b'"\xc0\x80"',
        b'"\xed\xa0\x80"',
        b'"\xf5\x80\x80\x80"',
        b'\xef\xbb\xbf"BOM"',
        '"utf-16"'.encode("utf-16"),
        b"\0",
        b"\x80\x04N.",
    ],
    ids=lambda data: repr(data)[:20],
)
def test_what_is_not_json_is_refused(data: Any) -> None:
    with pytest.raises(CodecError, match="Invalid JSON"):
        loads(data)


@pytest.mark.parametrize("data", [None, 5, 1.5, object(), ["[]"], {}], ids=named)
def test_only_text_and_bytes_are_read(data: Any) -> None:
    with pytest.raises(SennitError):
        loads(data)


@pytest.mark.parametrize(
    "bomb", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000, '[{"a":' * 50_000]
)
def test_a_depth_bomb_is_refused(bomb: str) -> None:
    for data in (bomb, bomb.encode()):
        with pytest.raises(CodecError, match="nested too deeply"):
            loads(data)


@pytest.mark.parametrize("data", ["[1,2,3,4]", b"[1,2,3,4]", "not even JSON"])
def test_a_size_bomb_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, data: str | bytes
) -> None:
    monkeypatch.setattr(codec, "MAX_BYTES", 8)
    with pytest.raises(CodecError, match=r"bytes of JSON exceed the limit of one record \(8\)"):
        loads(data)
    assert loads("[1,2,3]") == [1, 2, 3]


def test_what_is_too_big_to_be_read_back_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_BYTES", 8)
    assert dumps([1, 2, 3]) == b"[1,2,3]"
    with pytest.raises(CodecError, match=r"9 bytes .* split it"):
        dumps([1, 2, 3, 4])


def _too_deep() -> Any:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [object(), {"a": object()}, {("a",): 1}, "\ud800", {"\ud800": 1}, 1j, _too_deep()],
    ids=named,
)
def test_what_cannot_be_written_is_refused(value: Any) -> None:
    with pytest.raises(CodecError, match="cannot be encoded as JSON"):
        dumps(value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_number_that_json_lacks_is_ever_written(value: float) -> None:
    try:
        written = dumps([value])
    except SennitError:
        return
    assert same(json.loads(written), [None])


@given(st.binary(max_size=30) | st.text('[]{}",:\\u0189.eE+-truefalsn \0\ud800', max_size=30))
def test_any_input_is_read_or_refused(data: bytes | str) -> None:
    try:
        value = loads(data)
    except SennitError:
        return
    assert same(loads(dumps(value)), value)
