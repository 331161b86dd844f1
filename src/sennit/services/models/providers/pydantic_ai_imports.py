"""Imports of pydantic-ai, collected in one module.

`client` sends requests through it and `translate` converts messages; both import its names from
here, so the dependency is visible in one place. Its agents are not used. The import takes a second
or two, so only code that connects to a provider loads this module.
"""

from __future__ import annotations

from sennit.errors import MissingExtraError

try:
    from genai_prices import calc_price
    from httpx2 import AsyncClient, TimeoutException, TransportError
    from pydantic_ai import exceptions, messages
    from pydantic_ai.models import (
        Model,
        ModelRequestParameters,
        StreamedResponse,
        create_async_httpx2_client,
        infer_model,
    )
    from pydantic_ai.output import OutputObjectDefinition
    from pydantic_ai.providers import infer_provider_class
    from pydantic_ai.settings import ModelSettings
    from pydantic_ai.tools import ToolDefinition
    from pydantic_ai.usage import RequestUsage
except ImportError as error:
    raise MissingExtraError.of("Asking a provider's model", "models") from error

__all__ = [
    "AsyncClient",
    "Model",
    "ModelRequestParameters",
    "ModelSettings",
    "OutputObjectDefinition",
    "RequestUsage",
    "StreamedResponse",
    "TimeoutException",
    "ToolDefinition",
    "TransportError",
    "calc_price",
    "create_async_httpx2_client",
    "exceptions",
    "infer_model",
    "infer_provider_class",
    "messages",
]
