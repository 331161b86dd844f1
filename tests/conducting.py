"""Sessions and forms of answers that tests of operations share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel

from sennit import Session


class Answer(BaseModel):
    value: int


def session_with(
    *services: Any,
    resources: Any = "*",
    capabilities: Iterable[Any] = (Answer,),
    **given: Any,
) -> Session:
    """A session with services and a branch "main" that may use them all unless told otherwise."""
    session = Session(**given)
    session.services.register_all(services)
    session.create_branch("main", resources=resources, capabilities=list(capabilities))
    return session


async def invoked(session: Session, operation: str, **params: Any) -> Any:
    """What an operation on "main" gives."""
    return await (await session.conduct(branch="main", operation=operation, **params)).invoke()


def result_of(session: Session, operation: str, **params: Any) -> Any:
    """The same, for a test that is not async."""
    return asyncio.run(invoked(session, operation, **params))


def said(session: Session, branch: str = "main") -> list[str]:
    """What stands on a branch."""
    return [str(message.rendered) for message in session.get_branch(branch).messages]
