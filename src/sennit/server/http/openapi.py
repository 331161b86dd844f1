"""The OpenAPI document, generated from the endpoints."""

from __future__ import annotations

import re
from asyncio import to_thread
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from sennit.server.http.endpoint import Endpoint, HTTPRequest, ResponseModel

_REF = "#/components/schemas/{name}"
_PATH_PARAM = re.compile(r"{(\w+)}")


class ErrorBody(ResponseModel):
    """An error."""

    message: str
    type: str
    code: str
    param: str | None


class ErrorShape(ResponseModel):
    """The body of every error response."""

    error: ErrorBody


def openapi(table: Sequence[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document of endpoints."""
    kinds = [ErrorShape, *(kind for entry in table for kind in (entry.body, entry.answer))]
    models = list(dict.fromkeys(kind for kind in kinds if _is_model(kind)))
    parts, components = msgspec.json.schema_components(models, ref_template=_REF)
    schemas = dict(zip(models, parts, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for entry in table:
        paths.setdefault(entry.path, {})[entry.method.lower()] = _operation(entry, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Sennit", "version": version("sennit")},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint),
        "parameters": [*_path_params(endpoint), *_query_params(endpoint)],
        "responses": {
            str(endpoint.status): _response(endpoint, schemas),
            "default": {
                "description": "An error.",
                "content": {"application/json": {"schema": schemas[ErrorShape]}},
            },
        },
    }
    if endpoint.body is not None:
        content = {"application/json": {"schema": schemas[endpoint.body]}}
        operation["requestBody"] = {"required": _needs_body(endpoint.body), "content": content}
    if endpoint.scope is not None:
        operation["security"] = [{"token": [endpoint.scope]}]
    return operation


def _is_model(kind: Any) -> bool:
    return hasattr(kind, "__struct_fields__") or is_dataclass(kind)


def _operation_id(endpoint: Endpoint) -> str:
    words = re.findall(r"\w+", f"{endpoint.method.lower()} {endpoint.path}")
    return "_".join(words)


def _response(endpoint: Endpoint, schemas: dict[Any, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {"description": endpoint.summary}
    if endpoint.status != 204:
        schema = schemas.get(endpoint.answer, {"type": "object"})
        response["content"] = {endpoint.media: {"schema": schema}}
    return response


def _path_params(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _PATH_PARAM.findall(endpoint.path)
    ]


def _query_params(endpoint: Endpoint) -> list[dict[str, Any]]:
    if endpoint.query is None:
        return []
    schema = msgspec.json.schema(endpoint.query)
    definition: dict[str, Any] = schema["$defs"][endpoint.query.__name__]
    required = definition.get("required", ())
    return [
        {"name": name, "in": "query", "required": name in required, "schema": property_schema}
        for name, property_schema in definition["properties"].items()
    ]


def _needs_body(kind: type) -> bool:
    return any(field.required for field in msgspec.structs.fields(kind))


def endpoint(table: Sequence[Endpoint]) -> Endpoint:
    """Return the endpoint of the OpenAPI document of a table, which may contain it."""

    @cache
    def document() -> dict[str, Any]:
        return openapi(table)

    async def describe(_request: HTTPRequest) -> dict[str, Any]:
        """Read this OpenAPI document."""
        return await to_thread(document)

    return Endpoint.of("GET", "/openapi.json", describe, {"scope": None})
