"""A provider on loopback, and models that ask it."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator

import pytest

from sennit.services.models.providers.model import ProviderModel, connect
from tests.services.wire_server import WireServer, running

KEY = "key-of-the-test-4711"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WireServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with running() as server:
        yield server


@pytest.fixture
def openai(server: WireServer) -> ProviderModel:
    """A model that speaks OpenAI's form."""
    return connect("openai:wire-model", base_url=f"{server.url}/v1", api_key=KEY)


@pytest.fixture
def anthropic(server: WireServer) -> ProviderModel:
    return connect("anthropic:claude-wire", base_url=server.url, api_key=KEY)


@pytest.fixture(scope="session")
def google_sdk() -> None:
    with warnings.catch_warnings():  # it has a literal that Python warns of when compiling it
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("google.genai.types")


@pytest.fixture
def google(server: WireServer, google_sdk: None) -> ProviderModel:
    return connect("google:gemini-2.5-flash", base_url=server.url, api_key=KEY)
