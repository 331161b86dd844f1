"""Things done to a session, written down so that they can be done again elsewhere."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from sennit import InstructionContent, Message, Session, SystemContent
from sennit.ids import new_id


def choose(session: Session, random: Random, number: int) -> dict[str, Any]:
    """The next thing to do, complete with all ids it needs."""
    names = sorted(branch.name for branch in session.branches)
    if not names:
        return {"do": "create", "name": "main"}
    branch = session.get_branch(random.choice(names))
    fresh = {"id": str(new_id()), "text": f"message {number} " + "x" * random.randrange(300)}
    kinds = ["add"] * 8 + ["fork", "pop", "move", "erase", "system", "remove"]
    kind = random.choice(kinds)
    if kind == "add" or len(branch) < 3:
        return {"do": "add", "branch": branch.name, **fresh}
    place = random.randrange(1, len(branch))
    if kind == "fork" and len(names) < 12:
        return {"do": "fork", "branch": branch.name, "at": place, "name": f"fork {number}"}
    if kind == "move":
        return {"do": "move", "branch": branch.name, "from": place, "to": len(branch) - 1}
    if kind == "erase":
        return {"do": "erase", "id": str(branch[place])}
    if kind == "system":
        return {"do": "system", "branch": branch.name, **fresh}
    if kind == "remove" and len(names) > 1:
        return {"do": "remove", "branch": branch.name}
    return {"do": "pop", "branch": branch.name}


def perform(session: Session, action: dict[str, Any]) -> None:
    """Do it."""
    match action["do"]:
        case "create":
            session.create_branch(action["name"])
        case "add":
            message = Message(InstructionContent(action["text"]), id=action["id"])
            session.add_message(message, branches=action["branch"])
        case "fork":
            session.fork(action["branch"], at=action["at"], name=action["name"], system=True)
        case "move":
            session.get_branch(action["branch"]).move(action["from"], action["to"])
        case "erase":
            session.remove_message(action["id"])
        case "system":
            prompt = Message(SystemContent(action["text"]), id=action["id"])
            session.add_message(prompt, branches=action["branch"])
        case "remove":
            session.remove_branch(action["branch"])
        case _:
            session.get_branch(action["branch"]).pop()


def state(session: Session) -> dict[str, list[str]]:
    """What each branch says, and under which ids."""
    return {
        branch.name: [f"{m.id} {json.dumps(m.content.to_dict())}" for m in branch.messages]
        for branch in session.branches
    }
