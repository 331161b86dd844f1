"""The studio's files over HTTP: who may have them, and what a browser is told about them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sennit.server.http.tokens import add_token, new_token
from sennit.studio import files
from tests.http_server import Running, serving


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with serving() as running:
        yield running


def test_the_page_stands_at_the_root(server: Running) -> None:
    answer = server.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith("<!doctype html>")


@pytest.mark.parametrize("name", files())
def test_every_file_comes_with_its_type_and_the_policy(server: Running, name: str) -> None:
    answer = server.get(f"/studio/{name}")
    assert answer.status_code == 200
    assert answer.headers["x-content-type-options"] == "nosniff"
    if name.endswith(("js", "mjs")):
        assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "*" not in policy


def test_a_file_that_has_not_changed_is_not_sent_again(server: Running) -> None:
    etag = server.get("/studio/app.js").headers["etag"]
    again = server.get("/studio/app.js", headers={"if-none-match": etag})
    assert (again.status_code, again.content) == (304, b"")
    other = server.get("/studio/app.js", headers={"if-none-match": '"other"'})
    assert other.status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/studio/../__init__.py",
        "/studio/%2e%2e/__init__.py",
        "/studio/..%2f__init__.py",
        "/studio//etc/passwd",
        "/studio/vendor/VENDORED.md",
        "/studio/app.js/",
        "/studio/app.js%00",
        "/studio",
        "/app.js",
    ],
)
def test_nothing_else_is_served(server: Running, path: str) -> None:
    answer = server.get(path)
    assert answer.status_code in (400, 404)
    assert answer.json()["error"]["message"]


def test_files_are_only_read(server: Running) -> None:
    assert server.post("/studio/app.js").status_code == 405


def test_with_tokens_the_page_comes_without_one_and_the_data_does_not(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    add_token(tokens, new_token(user="ann")[1])
    with serving(tokens=tokens) as server:
        assert server.get("/").status_code == 200
        assert server.get("/studio/app.js").status_code == 200
        assert server.get("/api/sessions").status_code == 401
