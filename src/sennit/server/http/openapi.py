"""The OpenAPI description, generated from the table of endpoints."""

from __future__ import annotations

import re
from asyncio import to_thread
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from sennit.server.http.endpoint import Endpoint, HTTPRequest, ResponseModel

_REF = "#/components/schemas/{name}"
_BRACES = re.compile(r"{(\w+)}")


class ErrorBody(ResponseModel):
    """An error."""

    message: str
    type: str
    code: str
    param: str | None


class ErrorShape(ResponseModel):
    """The body of every answer that is an error."""

    error: ErrorBody


def openapi(table: Sequence[Endpoint]) -> dict[str, Any]:
    """The description of all endpoints."""
    kinds = [ErrorShape, *(kind for one in table for kind in (one.body, one.answer) if kind)]
    named = list(dict.fromkeys(kind for kind in kinds if isinstance(kind, type)))
    schemas, components = msgspec.json.schema_components(named, ref_template=_REF)
    known = dict(zip(named, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in table:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sennit", "version": version("sennit")},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Endpoint, known: dict[Any, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": one.summary,
        "operationId": _id(one),
        "parameters": [*_in_path(one), *_in_query(one)],
        "responses": {
            str(one.status): _answer(one, known),
            "default": {
                "description": "Something went wrong.",
                "content": {"application/json": {"schema": known[ErrorShape]}},
            },
        },
    }
    if one.body is not None:
        content = {"application/json": {"schema": known[one.body]}}
        told["requestBody"] = {"required": _needs_body(one.body), "content": content}
    if one.scope is not None:
        told["security"] = [{"token": [one.scope]}]
    return told


def _id(one: Endpoint) -> str:
    words = re.findall(r"\w+", f"{one.method.lower()} {one.path}")
    return "_".join(words)


def _answer(one: Endpoint, known: dict[Any, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"description": one.summary}
    if one.status != 204:
        schema = known.get(one.answer, {}) if isinstance(one.answer, type) else {"type": "object"}
        told["content"] = {one.media: {"schema": schema}}
    return told


def _in_path(one: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _BRACES.findall(one.path)
    ]


def _in_query(one: Endpoint) -> list[dict[str, Any]]:
    if one.query is None:
        return []
    schema = msgspec.json.schema(one.query)
    described: dict[str, Any] = schema["$defs"][one.query.__name__]
    needed = described.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in needed, "schema": about}
        for name, about in described["properties"].items()
    ]


def _needs_body(kind: type) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


def endpoint(table: Sequence[Endpoint]) -> Endpoint:
    """The route of the description of a table, of which it may be a part itself."""

    @cache
    def described() -> dict[str, Any]:
        return openapi(table)

    async def describe(_call: HTTPRequest) -> dict[str, Any]:
        return await to_thread(described)

    return Endpoint(
        method="GET",
        path="/openapi.json",
        handle=describe,
        scope=None,
        summary="This description",
        answer=dict[str, Any],
    )
