"""Services: language models and tools, and the registry that holds them by name."""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.services.local.model import LocalModel
    from sennit.services.models.limits import CircuitBreaker, RateLimit, Retry, Timeout
    from sennit.services.models.params import PARAMS
    from sennit.services.models.protocol import Model
    from sennit.services.models.providers.model import connect
    from sennit.services.models.reply import (
        CallDelta,
        Delta,
        Finished,
        ReasoningDelta,
        Reply,
        ReplyCall,
        ReplyReasoning,
        ReplyText,
        TextDelta,
        Usage,
    )
    from sennit.services.models.request import ModelRequest
    from sennit.services.models.usage import Meter, UsageRecord
    from sennit.services.tools.backend import ToolContext
    from sennit.services.tools.mcp import MCPServer
    from sennit.services.tools.mcp_call import Elicitation

__all__ = [
    "PARAMS",
    "CallDelta",
    "CircuitBreaker",
    "Delta",
    "Elicitation",
    "Finished",
    "LocalModel",
    "MCPServer",
    "Meter",
    "Model",
    "ModelRequest",
    "RateLimit",
    "ReasoningDelta",
    "Reply",
    "ReplyCall",
    "ReplyReasoning",
    "ReplyText",
    "Retry",
    "TextDelta",
    "Timeout",
    "ToolContext",
    "Usage",
    "UsageRecord",
    "connect",
]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    __getattr__ = lazy_exports(
        __name__,
        {
            "local.model": "LocalModel",
            "models.limits": "CircuitBreaker RateLimit Retry Timeout",
            "models.params": "PARAMS",
            "models.providers.model": "connect",
            "models.protocol": "Model",
            "models.reply": (
                "CallDelta Delta Finished ReasoningDelta Reply ReplyCall ReplyReasoning ReplyText "
                "TextDelta Usage"
            ),
            "models.request": "ModelRequest",
            "models.usage": "Meter UsageRecord",
            "tools.backend": "ToolContext",
            "tools.mcp": "MCPServer",
            "tools.mcp_call": "Elicitation",
        },
    )
