"""Imports of DSPy, in one place.

DSPy has no type hints that pyright can use, so all its names are Any.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from sennit.errors import MissingExtraError

try:
    dspy: Any = import_module("dspy")
except ImportError as error:
    raise MissingExtraError.of("sennit.learning.dspy", "dspy") from error

Adapter: Any = dspy.Adapter
Module: Any = dspy.Module
History: Any = dspy.History
Example: Any = dspy.Example
Predict: Any = dspy.Predict
Prediction: Any = dspy.Prediction
Teleprompter: Any = import_module("dspy.teleprompt").Teleprompter

_types: Any = import_module("dspy.adapters.types.base_type")
BlockType: Any = _types.Type
BLOCK_START: str = _types.CUSTOM_TYPE_START_IDENTIFIER
BLOCK_END: str = _types.CUSTOM_TYPE_END_IDENTIFIER
