"""What tests need: Sennit's own use it, and so can yours."""

from sennit.testing.instant import run_instantly
from sennit.testing.scripted import ScriptedModel, ToolCall

__all__ = ["ScriptedModel", "ToolCall", "run_instantly"]
