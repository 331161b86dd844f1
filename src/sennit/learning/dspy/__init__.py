"""DSPy programs that remember, branch and become training data."""

from sennit.learning.dspy.session import Session, sessionify
from sennit.learning.dspy.state import SessionState
from sennit.learning.dspy.turn import Turn

__all__ = ["Session", "SessionState", "Turn", "sessionify"]
