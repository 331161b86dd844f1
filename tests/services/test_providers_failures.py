"""Whatever goes wrong at a provider becomes a ModelError that says who has to act."""

from __future__ import annotations

import asyncio
import logging
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain, repeat
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import sennit
from sennit.errors import ModelError
from sennit.services.models.providers.model import ProviderModel, connect
from sennit.services.models.reply import Delta, TextDelta
from tests.services.asking import asked, failing, request, streamed
from tests.services.conftest import KEY
from tests.services.wire_server import (
    DONE,
    DROP,
    STALL,
    Step,
    WireServer,
    answer,
    anthropic_block,
    anthropic_event,
    anthropic_start,
    chunk,
    chunks,
    completed,
    completion,
    event,
    piece,
)

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
TEXT = {"type": "text", "text": "so"}


def openai_error(status: int, message: str = "no", **more: Any) -> list[Step]:
    return answer({"error": {"message": message, **more}}, status)


def anthropic_error(status: int, type: str, message: str = "no") -> list[Step]:
    return answer({"type": "error", "error": {"type": type, "message": message}}, status)


@BOTH
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (openai_error(401, code="invalid_api_key"), "auth"),
        (openai_error(403), "auth"),
        (openai_error(404, code="model_not_found"), "not_found"),
        (openai_error(400), "bad_request"),
        (openai_error(413), "bad_request"),
        (openai_error(422), "bad_request"),
        (openai_error(408), "timeout"),
        (openai_error(429), "rate_limit"),
        (openai_error(429, code="insufficient_quota"), "rate_limit"),
        (openai_error(500), "overloaded"),
        (openai_error(502), "overloaded"),
        (openai_error(503), "overloaded"),
        (openai_error(400, code="context_length_exceeded"), "context"),
        (openai_error(400, "This model's maximum context length is 8192 tokens."), "context"),
        (openai_error(400, "the request exceeds the available context size"), "context"),
        (answer(b"<html>Bad gateway</html>", 502, {"content-type": "text/html"}), "overloaded"),
    ],
)
def test_an_error_in_the_form_of_openai_has_its_kind(
    server: WireServer, openai: ProviderModel, said: list[Step], kind: str, stream: bool
) -> None:
    server.says(said)
    error = failing(openai, stream=stream)
    assert error.kind == kind
    assert error.status is not None
    assert error.__cause__ is not None
    assert len(server.asked) == 1  # nobody but the caller asks again


@BOTH
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (anthropic_error(401, "authentication_error"), "auth"),
        (anthropic_error(404, "not_found_error"), "not_found"),
        (anthropic_error(400, "invalid_request_error"), "bad_request"),
        (
            anthropic_error(
                400, "invalid_request_error", "prompt is too long: 200001 tokens > 200000 maximum"
            ),
            "context",
        ),
        (
            anthropic_error(
                400,
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000",
            ),
            "context",
        ),
        (anthropic_error(429, "rate_limit_error"), "rate_limit"),
        (anthropic_error(500, "api_error"), "overloaded"),
        (anthropic_error(529, "overloaded_error"), "overloaded"),
    ],
)
def test_an_error_in_the_form_of_anthropic_has_its_kind(
    server: WireServer, anthropic: ProviderModel, said: list[Step], kind: str, stream: bool
) -> None:
    server.says(said)
    assert failing(anthropic, stream=stream).kind == kind
    assert len(server.asked) == 1


def test_google_s_errors_have_their_kind(server: WireServer, google: ProviderModel) -> None:
    for status, code, kind in [
        (429, "RESOURCE_EXHAUSTED", "rate_limit"),
        (400, "INVALID_ARGUMENT", "bad_request"),
        (503, "UNAVAILABLE", "overloaded"),
    ]:
        server.says(answer({"error": {"code": status, "message": "no", "status": code}}, status))
        assert failing(google, stream=False).kind == kind
        assert failing(google, stream=True).kind == kind
    assert len(server.asked) == 6


@BOTH
def test_the_seconds_to_wait_are_told(
    server: WireServer, openai: ProviderModel, stream: bool
) -> None:
    server.says(answer({"error": {"message": "slow down"}}, 429, {"retry-after": "7"}))
    error = failing(openai, stream=stream)
    assert (error.retry_after, error.status, error.retryable) == (7, 429, True)


def test_a_date_to_wait_for_is_told_in_seconds(server: WireServer, openai: ProviderModel) -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    server.says(answer({"error": {"message": "slow down"}}, 429, {"retry-after": later}))
    wait = failing(openai, stream=False).retry_after
    assert wait is not None
    assert 3000 < wait <= 3600


def told_before(model: ProviderModel) -> tuple[list[Delta], ModelError]:
    """What a stream tells before it fails, and how it fails."""
    told: list[Delta] = []

    async def listen() -> None:
        async with model.stream(request()) as deltas:
            async for delta in deltas:
                told.append(delta)  # noqa: PERF401 (what came before the error counts)

    with pytest.raises(ModelError) as caught:
        asyncio.run(listen())
    return told, caught.value


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (event({"error": {"message": "boom", "type": "server_error"}}), "overloaded"),
        (event({"error": {"message": "wait", "code": "rate_limit_exceeded"}}), "rate_limit"),
        (event({"error": {"message": "long", "code": "context_length_exceeded"}}), "context"),
        (event({"error": {"message": "what"}}), "failed"),
        (event('{"choices": [{"del'), "malformed"),
        (event("nonsense"), "malformed"),
        (event({"choices": [{"index": 0, "delta": "?"}]}), "malformed"),
        (event({"choices": "?"}), "malformed"),
        (DONE, "network"),
        (b"", "network"),
        (DROP, "network"),
    ],
)
def test_what_was_told_before_a_stream_fails_is_kept(
    server: WireServer, openai: ProviderModel, said: Step, kind: str
) -> None:
    server.says(chunks(piece(content="so far"), *([said] if said else []), end=said is not DROP))
    told, error = told_before(openai)
    assert told == [TextDelta("so far")]
    assert error.kind == kind


def test_a_stream_of_bytes_that_are_no_text_is_malformed(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(chunks(piece(content="so far"), b'data: {"id": "\xff\xfe"}\n\n', DONE))
    assert told_before(openai)[1].kind == "malformed"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (
            anthropic_event("error", error={"type": "overloaded_error", "message": "busy"}),
            "overloaded",
        ),
        (
            anthropic_event("error", error={"type": "rate_limit_error", "message": "no"}),
            "rate_limit",
        ),
        (event('{"type": "content_bl', "content_block_delta"), "malformed"),
        (DROP, "network"),
        (b"", "network"),
    ],
)
def test_what_anthropic_told_before_a_stream_fails_is_kept(
    server: WireServer, anthropic: ProviderModel, said: Step, kind: str
) -> None:
    pieces = [anthropic_start(), anthropic_block(0, TEXT), *([said] if said else [])]
    server.says(chunks(*pieces, end=said is not DROP))
    told, error = told_before(anthropic)
    assert told == [TextDelta("so")]
    assert error.kind == kind


@BOTH
@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (answer(b"not json"), "malformed"),
        (answer({"choices": []}), "malformed"),
        (answer(b"hello", 200, {"content-type": "text/plain"}), "malformed"),
        ([DROP], "network"),
        ([b"SMTP ready\r\n\r\n", DROP], "network"),
    ],
)
def test_an_answer_that_is_none_is_an_error(
    server: WireServer, openai: ProviderModel, said: list[Step], kind: str, stream: bool
) -> None:
    server.says(said)
    assert failing(openai, stream=stream).kind == kind


def test_an_answer_cut_off_in_the_middle_is_an_error(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(
        [b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{", DROP]
    )
    assert failing(openai, stream=False).kind == "network"


@BOTH
def test_nobody_at_the_address_is_a_network_error(stream: bool) -> None:
    model = connect("openai:m", base_url="http://127.0.0.1:9/v1", api_key=KEY)
    error = failing(model, stream=stream)
    assert (error.kind, error.retryable) == ("network", True)


@BOTH
@pytest.mark.parametrize("said", [[STALL], chunks(piece(content="so"), STALL)])
def test_the_time_limit_is_for_the_whole_answer(
    server: WireServer, openai: ProviderModel, said: list[Step], stream: bool
) -> None:
    server.says(said)
    error = failing(openai, request(params={"timeout": 0.2}), stream=stream)
    assert error.kind == "timeout"
    assert "0.2 s" in str(error)
    assert server.hung_up.wait(30)


def test_an_endless_answer_does_not_outlive_the_time_limit(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(chain(chunks(end=False), repeat(chunk(piece(content="on and on")))))
    error = failing(openai, request(params={"timeout": 0.3}), stream=True)
    assert error.kind == "timeout"
    assert server.hung_up.wait(30)


@BOTH
def test_a_key_is_in_no_error_and_no_traceback(
    server: WireServer, openai: ProviderModel, stream: bool
) -> None:
    server.says(openai_error(401, f"Incorrect API key provided: {KEY}."))
    error = failing(openai, stream=stream)
    shown = "".join(traceback.format_exception(error))
    assert KEY not in shown
    assert "Incorrect API key provided: ***" in shown
    assert error.__cause__ is None
    assert error.__context__ is None


def test_keys_of_the_environment_and_of_headers_are_in_no_error(
    server: WireServer, openai: ProviderModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hidden-in-the-environment")
    quoted = "hidden-in-the-environment hidden-in-a-header sk-abcdef123456 Bearer abc.def"
    server.says(openai_error(400, quoted))
    headers = {"x-mine": "hidden-in-a-header"}
    error = failing(openai, request(params={"extra_headers": headers}), stream=False)
    assert str(error).endswith("failed (400): *** *** *** Bearer ***")


def test_a_key_in_the_middle_of_a_stream_is_in_no_error(
    server: WireServer, openai: ProviderModel
) -> None:
    server.says(chunks(piece(content="so"), event({"error": {"message": f"bad {KEY}"}})))
    _, error = told_before(openai)
    assert KEY not in "".join(traceback.format_exception(error))


def test_a_key_is_in_no_log(
    server: WireServer, openai: ProviderModel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.says(completed(piece(content="x")), openai_error(401, "no"))
    streamed(openai)
    failing(openai, stream=False)
    assert caplog.records
    assert KEY not in caplog.text


def test_a_key_is_in_no_store_and_no_export(
    server: WireServer, openai: ProviderModel, tmp_path: Path
) -> None:
    server.says(answer(completion("so")), openai_error(401, f"Wrong key {KEY}"))
    with sennit.open(tmp_path / "sennit.db") as client:
        talk = client.session("chat").conversation(model=openai)
        assert asyncio.run(talk.asay("hi")).success
        assert not asyncio.run(talk.asay("again")).success
        client.export(tmp_path / "archive.zip")
        client.export_training(tmp_path / "rows.jsonl")
    kept = [path for path in tmp_path.iterdir() if path.name.startswith("sennit.db")]
    assert kept
    for path in (*kept, tmp_path / "rows.jsonl"):
        assert KEY.encode() not in path.read_bytes()
    with ZipFile(tmp_path / "archive.zip") as archive:
        assert all(KEY.encode() not in archive.read(name) for name in archive.namelist())


def test_a_very_long_error_is_cut(server: WireServer, openai: ProviderModel) -> None:
    server.says(openai_error(400, "no " * 10_000))
    with pytest.raises(ModelError) as caught:
        asked(openai)
    assert len(str(caught.value)) < 1000
