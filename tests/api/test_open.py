"""`sennit.open`: addresses, defaults, and the client as a context manager."""

from __future__ import annotations

from pathlib import Path

import pytest

import sennit
from sennit import Client, NotFoundError, ValidationError


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


@pytest.mark.parametrize("url", ["", "mysql://host/db", "http://example.com"])
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


@pytest.mark.parametrize("owner", [{"tenant": "a\0b"}, {"user": 5}, {"user": "\ud800"}])
def test_an_owner_no_store_could_keep_is_refused(owner: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        sennit.open(":memory:", **owner)  # pyright: ignore


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
    with pytest.raises(ValidationError, match="is for a file") as caught:
        sennit.open(url, durability="normal")
    assert "hunter2" not in str(caught.value)


def test_a_session_that_must_be_there_is_not_made() -> None:
    with sennit.open(":memory:") as client:
        with pytest.raises(NotFoundError, match="'chta'"):
            client.session("chta", create=False)
        assert client.sessions() == []
        made = client.session("chat")
        assert client.session("chat", create=False) is made
