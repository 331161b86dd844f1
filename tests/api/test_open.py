"""`sennit.open`: addresses, defaults, and the client as a context manager."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import (
    Client,
    InvalidTypeError,
    NotFoundError,
    Session,
    StoreError,
    ValidationError,
)
from sennit.api.client_pool import ClientPool
from sennit.memory.retrieval.embedders import WordEmbedder
from sennit.stores.in_memory.store import MemoryStore
from sennit.stores.sqlite.store import SQLiteStore


def test_memory_ends_with_the_client() -> None:
    with sennit.open(":memory:") as client:
        client.session("chat").add_message("user", "hi")
        assert len(client.session("chat").messages) == 1
    assert sennit.open(":memory:").sessions() == []


def test_the_default_is_a_file_in_the_users_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SENNIT_URL", raising=False)
    monkeypatch.setattr("sennit.settings.data_folder", lambda: tmp_path / "data")
    with sennit.open() as client:
        client.session("chat")
    assert (tmp_path / "data" / "sennit.db").exists()


def test_sennit_url_sets_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENNIT_URL", str(tmp_path / "mine.db"))
    sennit.open().close()
    assert (tmp_path / "mine.db").exists()


def test_a_tilde_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SENNIT_URL", "~/by_default.db")
    monkeypatch.chdir(tmp_path)
    for url in ("~/a.db", Path("~/b.db"), None):
        sennit.open(url).close()
    with Session(store="~/c.db"):
        pass
    assert [one.name for one in tmp_path.iterdir()] == ["home"]
    names = sorted(one.name for one in (tmp_path / "home").iterdir())
    assert names == ["a.db", "b.db", "by_default.db", "c.db"]


@pytest.mark.parametrize("url", ["", "mysql://host/db", "http://example.com", "file:x.db?mode=ro"])
def test_an_address_of_no_known_kind_names_the_way_out(url: str) -> None:
    with pytest.raises(ValidationError, match="path of a file"):
        sennit.open(url)


def test_parameters_of_a_connection_are_not_taken_for_the_path_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValidationError, match="postgresql://") as caught:
        sennit.open("user=me password=hunter2 dbname=chats host=/run/postgresql")
    assert "hunter2" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", [5, 0, b"x.db", [], os.DirEntry])
def test_what_is_no_address_is_refused(url: Any) -> None:
    with pytest.raises(InvalidTypeError, match=f"path of a file.*got {re.escape(repr(url))}"):
        sennit.open(url)


@pytest.mark.parametrize("url", ["a\0b.db", "postgresql://localhost/a\0b"])
def test_an_address_with_a_nul_character_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="NUL character"):
        sennit.open(url)


@pytest.mark.parametrize("value", ["", 0, 5, b"x", "a\0b", "\ud800", "é" * 501])
@pytest.mark.parametrize("name", ["tenant", "user", "agent"])
def test_an_owner_no_store_could_keep_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=f"^{name} "):
        sennit.open(":memory:", **{name: value})


def test_a_store_is_closed_again_where_its_client_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[SQLiteStore] = []

    def noted(*given: Any) -> Any:
        opened.append(SQLiteStore(tmp_path / "a.db"))
        return opened[0]

    monkeypatch.setattr("sennit.api.open.open_store", noted)
    with pytest.raises(ValidationError):
        sennit.open("a.db", user="")
    with pytest.raises(StoreError, match="is closed"):
        opened[0].scrub()


@pytest.mark.parametrize("embedder", [5, "minilm", WordEmbedder])
def test_what_cannot_embed_is_refused_when_opening(embedder: Any) -> None:
    with pytest.raises(InvalidTypeError, match="embedder must have a name"):
        sennit.open(":memory:", embedder=embedder)
    with pytest.raises(InvalidTypeError, match="embedder must have a name"):
        ClientPool(MemoryStore(), embedder=embedder)


def test_a_page_of_sessions_comes_before_a_session() -> None:
    client = sennit.open(":memory:")
    with pytest.raises(InvalidTypeError, match=r"before must be a SessionInfo.*got 5"):
        client.sessions(before=5)  # pyright: ignore


@pytest.mark.parametrize("key", ["", None, 5, "a\0b"])
def test_a_bad_session_key_is_refused(key: object) -> None:
    client = sennit.open(":memory:")
    with pytest.raises(ValidationError, match="session key"):
        client.session(key)  # pyright: ignore
    assert client.sessions() == []


@pytest.mark.parametrize("limit", [0, -1, True, "5", None])
def test_a_bad_limit_is_refused(limit: object) -> None:
    client = sennit.open(":memory:")
    with pytest.raises(ValidationError, match="limit"):
        client.sessions(limit=limit)  # pyright: ignore


def test_a_client_knows_whose_it_is() -> None:
    client = sennit.open(":memory:", tenant="acme", user="ada")
    assert isinstance(client, Client)
    assert (client.tenant, client.user) == ("acme", "ada")


@pytest.mark.parametrize("url", [":memory:", "postgresql://u:hunter2@localhost/db"])
def test_durability_is_refused_where_it_would_do_nothing(url: str) -> None:
    with pytest.raises(ValidationError, match="applies only to SQLite files") as caught:
        sennit.open(url, durability="normal")
    assert "hunter2" not in str(caught.value)


def test_a_session_that_must_be_there_is_not_made() -> None:
    with sennit.open(":memory:") as client:
        with pytest.raises(NotFoundError, match="'chta'"):
            client.session("chta", create=False)
        assert client.sessions() == []
        made = client.session("chat")
        assert client.session("chat", create=False) is made
