"""DSPy programs that are killed in the middle of a conversation, or speak on one at once."""

from __future__ import annotations

from typing import Any

import dspy
from dspy.utils import DummyLM

from sennit.learning.dspy import Session, with_memory
from sennit.testing import faults
from tests.torture.fork_server import Say
from tests.torture.ground import opened


class Two(dspy.Module):
    """Plans, then answers; each predictor has a past of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = dspy.Predict("question -> step")
        self.act = dspy.Predict("step -> answer")

    def forward(self, question: str) -> Any:
        return self.act(step=self.plan(question=question).step)


def wrapped(client: Any) -> Session:
    """The program on the conversation that all speak on."""
    return with_memory(Two(), store=client, key="bot")


def model() -> Any:
    """A model that always has an answer."""
    return dspy.context(lm=DummyLM([{"step": f"s{n}", "answer": f"a{n}"} for n in range(500)]))


def speak(job: dict[str, Any], say: Say) -> None:
    """In a child: ask numbered questions, and say each that was answered."""
    with model(), opened(job["address"]) as client:
        session = wrapped(client)
        for number in range(job["count"]):
            session(question=f"{job['name']} {number}")
            say(f"{job['name']} {number}")


def count_points(job: dict[str, Any], say: Say) -> None:
    """The same, and how many points of the store it passes."""
    with faults.record() as points:
        speak(job, lambda _: None)
    say(str(len(points)))


def speak_until_killed(job: dict[str, Any], say: Say) -> None:
    """The same, up to a point at which the process is killed."""
    with faults.arm("*", faults.kill, at=job["at"]):
        speak(job, say)
