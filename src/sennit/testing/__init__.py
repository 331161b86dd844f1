"""What tests need: Sennit's own use it, and so can yours."""

from sennit.testing.scripted_model import ScriptedModel, ToolCall
from sennit.testing.virtual_time import run_instantly

__all__ = ["ScriptedModel", "ToolCall", "run_instantly"]
