"""The address of an image is never fetched from here, whichever provider is asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from sennit import InstructionContent, ModelError, ValidationError, iModel
from sennit.services.models.providers.model import PROVIDERS, connect
from sennit.services.models.request import ModelRequest, model_request
from tests.services.asking import asked, streamed
from tests.services.conftest import KEY
from tests.services.wire_server import WireServer, answer, completion, running

pytestmark = pytest.mark.usefixtures("google_sdk")
REFUSED = "does not accept image URLs.*fetch_images=True"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    """The host of the image; private addresses may be fetched, as if it were a public one."""
    from pydantic_ai import _ssrf

    fetch = _ssrf.safe_download

    async def anywhere(url: str, **more: Any) -> Any:
        return await fetch(url, **{**more, "allow_local": True})

    monkeypatch.setattr(_ssrf, "safe_download", anywhere)
    with running() as host:
        yield host


def with_image(host: WireServer) -> ModelRequest:
    """A question about an image; messages hold no address of this machine, chat messages may."""
    url = f"{host.url}/knot.png"
    blocks = [{"type": "text", "text": "Which?"}, {"type": "image_url", "image_url": {"url": url}}]
    return model_request([{"role": "user", "content": blocks}])


class Recorder:
    """Stands for a provider whose address cannot be changed; nothing leaves the machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from httpx2 import AsyncClient, MockTransport, Response

        self.bodies: list[str] = []

        def heard(request: Any) -> Response:
            self.bodies.append(request.content.decode())
            return Response(200, json=completion("so"))

        client = AsyncClient(transport=MockTransport(heard))
        monkeypatch.setattr(
            "sennit.services.models.providers.client.create_async_httpx2_client", lambda: client
        )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_request_reaches_the_host_of_an_image(
    server: WireServer,
    host: WireServer,
    monkeypatch: pytest.MonkeyPatch,
    provider: str,
    stream: bool,
) -> None:
    server.says(answer(completion("so")))
    recorder = None
    try:
        model = connect(f"{provider}:openai/gpt-4o", base_url=server.url, api_key=KEY)
    except ValidationError:
        recorder = Recorder(monkeypatch)
        model = connect(f"{provider}:openai/gpt-4o", api_key=KEY)
    ask = streamed if stream else asked
    if provider == "google":
        with pytest.raises(ValidationError, match=REFUSED):
            ask(model, with_image(host))
        assert server.asked == []
    else:
        with suppress(ModelError):  # what is answered does not matter here
            ask(model, with_image(host))
        bodies = [str(server.body)] if recorder is None else recorder.bodies
        assert [f"{host.url}/knot.png" in body for body in bodies] == [True]
    assert host.asked == []


def test_an_image_by_address_is_refused_for_google_from_a_conversation(
    server: WireServer, host: WireServer
) -> None:
    model = iModel("google:gemini-2.5-flash", base_url=server.url, api_key=KEY)
    content = InstructionContent(instruction="Which?", images=["https://example.com/knot.png"])
    with pytest.raises(ValidationError, match=REFUSED):
        asked(model, model_request(content))
    assert server.asked == host.asked == []


def test_an_image_is_fetched_for_google_where_the_program_allows_it(
    server: WireServer, host: WireServer
) -> None:
    model = iModel("google:gemini-2.5-flash", base_url=server.url, api_key=KEY, fetch_images=True)
    host.says(answer({"not": "an image"}))
    gemini = {"candidates": [{"content": {"parts": [{"text": "so"}]}, "finishReason": "STOP"}]}
    server.says(answer(gemini))
    assert asked(model, with_image(host)).text == "so"
    assert len(host.asked) == 1


def test_a_private_address_is_refused_even_where_images_are_fetched(server: WireServer) -> None:
    model = iModel("google:gemini-2.5-flash", base_url=server.url, api_key=KEY, fetch_images=True)
    with running() as private:
        with pytest.raises(ModelError, match="private"):
            asked(model, with_image(private))
        assert private.asked == server.asked == []
