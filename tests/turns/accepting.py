"""What the providers accept, as rules over what they are sent; each raises where one is broken."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def openai(messages: list[dict[str, Any]]) -> None:
    """Every call has an id of its own, and its one result right behind the message that asks."""
    used: set[str] = set()
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result without a call"
            waiting.remove(message["tool_call_id"])
            assert isinstance(message["content"], str)
            continue
        assert not waiting, f"{waiting} have no result"
        calls = message.get("tool_calls") or []
        assert calls or spoken(message["content"]), f"{message} says nothing"
        for call in calls:
            waiting.append(sound(call["id"], used))
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting, f"{waiting} have no result"
    assert messages[-1]["role"] == "user"


def anthropic(messages: list[dict[str, Any]]) -> None:
    """Turns alternate, no text is blank, and the results open the turn after the calls."""
    used: set[str] = set()
    waiting: list[str] = []
    roles = [message["role"] for message in messages]
    assert roles[0] == roles[-1] == "user"
    assert all(one != other for one, other in pairwise(roles)), roles
    for message in messages:
        blocks = message["content"]
        assert blocks
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        results = [one["tool_use_id"] for one in blocks if one["type"] == "tool_result"]
        assert sorted(results) == sorted(waiting)
        assert all(one["type"] == "tool_result" for one in blocks[: len(results)])
        waiting = []
        for block in blocks:
            if block["type"] == "tool_use":
                assert isinstance(block["input"], dict)
                assert NAME.fullmatch(block["name"])
                waiting.append(sound(block["id"], used))
            elif block["type"] == "text":
                assert spoken(block["text"]), "a blank text"
    assert not waiting


def google(contents: list[dict[str, Any]]) -> None:
    """No part is empty, and as many results as calls come right after them."""
    waiting: list[str] = []
    roles = [content["role"] for content in contents]
    assert roles[0] == roles[-1] == "user"
    for content in contents:
        parts = content["parts"]
        assert parts
        results = [one["functionResponse"]["name"] for one in parts if "functionResponse" in one]
        assert results == waiting
        waiting = [one["functionCall"]["name"] for one in parts if "functionCall" in one]
        for part in parts:
            assert part.keys() & {"text", "functionCall", "functionResponse"}
            assert spoken(part.get("text", "x"))
    assert not waiting


def sound(id: str, used: set[str]) -> str:
    """An id that every provider takes, and that was not used before."""
    assert ID.fullmatch(id), id
    assert id not in used, f"{id} is used twice"
    used.add(id)
    return id


def spoken(said: Any) -> bool:
    """Whether there is more than blanks."""
    return bool(said.strip() if isinstance(said, str) else said)
