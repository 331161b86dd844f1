"""The OpenAPI description and the page of the server say what the table of routes says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sennit.server.app import endpoints
from sennit.server.http.openapi import openapi
from tests.http_server import serving

PAGE = Path(__file__).parents[3] / "docs" / "server.md"


def test_every_route_is_described_and_nothing_else() -> None:
    described = openapi(endpoints())
    told = {(method.upper(), path) for path, item in described["paths"].items() for method in item}
    assert told == {(one.method, one.path) for one in endpoints()}


def test_each_operation_has_a_name_of_its_own() -> None:
    paths = openapi(endpoints())["paths"]
    names = [operation["operationId"] for item in paths.values() for operation in item.values()]
    assert len(names) == len(set(names))


def test_what_is_referred_to_is_there() -> None:
    described = openapi(endpoints())
    known = set(described["components"]["schemas"])
    assert set(references(described)) <= known
    assert {"MessageShape", "EventShape", "ErrorShape", "RunRequest"} <= known


def references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"].rpartition("/")[2]] if "$ref" in value else []
        return own + [one for item in value.values() for one in references(item)]
    if isinstance(value, list):
        return [one for item in value for one in references(item)]
    return []


def test_the_description_is_served_to_anyone() -> None:
    with serving() as server:
        answer = server.get("/openapi.json")
        assert answer.json()["openapi"].startswith("3.1")
        run = answer.json()["paths"]["/api/sessions/{session}/branches/{branch}/runs"]["post"]
        assert run["security"] == [{"token": ["run"]}]


def test_the_page_lists_every_route_with_its_scope() -> None:
    row = re.compile(r"^\| `(\w+) (/\S+)` \| (\S*) \| (.+) \|$", re.MULTILINE)
    listed = {(found[0], found[1]): found[2:] for found in row.findall(PAGE.read_text())}
    table = {
        (one.method, one.path): (one.scope or "—", one.summary)
        for one in endpoints()
        if not one.path.startswith("/v1")
    }
    assert listed == table
