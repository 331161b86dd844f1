"""Test support for programs that use Sennit."""

from sennit.testing.scripted_model import ScriptedModel, ToolCall
from sennit.testing.virtual_time import run_instantly

__all__ = ["ScriptedModel", "ToolCall", "run_instantly"]
