"""Messages and branches: construct, add, fork, prepare, encode, decode, remove, memory, import."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc
import uuid
from collections.abc import Iterator

from benchmarks.harness import Result, Work, compare
from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Branch,
    InstructionContent,
    Message,
    MessageContent,
    Session,
    SystemContent,
    prepare_messages_for_chat,
    to_model_messages,
)

SIZES = (1_000, 10_000)
_WORDS = (
    "strands of a line are laid over and under each other until they hold as one and bear more "
)


def run() -> Iterator[Result]:
    """All results of this step, one after another."""
    for size in SIZES:
        yield construct(size)
        yield add(size)
        yield encode(size)
        yield decode(size)
        yield prepare(size)
        yield prepare_again(size)
        yield native(size)
        yield remove(size)
    yield from fork()
    yield memory()
    yield imports()


def _text(length: int) -> str:
    return (_WORDS * (length // len(_WORDS) + 1))[:length]


def contents(size: int) -> list[MessageContent]:
    """A fixed mix: 40 % questions, 40 % answers, 10 % tool calls, 10 % tool results."""
    mix: list[MessageContent] = []
    for number in range(size):
        match number % 10:
            case 3:
                query = {"query": f"topic {number}", "limit": 5}
                mix.append(ActionRequestContent("search", query, f"call_{number}"))
            case 4:
                items = [
                    {"title": f"Result {number}", "text": _text(80), "score": 0.5},
                    {"title": "Another", "text": _text(60), "score": 1},
                ]
                mix.append(ActionResponseContent(f"call_{number - 1}", {"items": items}))
            case even if even % 2 == 0:
                mix.append(InstructionContent(f"Question {number}: {_text(80)}"))
            case _:
                mix.append(AssistantResponseContent(f"Answer {number}: {_text(400)}"))
    return mix


def conversation(size: int) -> tuple[Session, Branch]:
    """A session with one branch of the fixed mix."""
    session = Session()
    prompt = Message(SystemContent(system_message="You are a helpful assistant."))
    branch = session.create_branch("main", system=prompt)
    for content in contents(size):
        session.add_message(Message(content), branches=branch)
    return session, branch


def _plain_message() -> dict[str, object]:
    return {
        "id": str(uuid.uuid4()),
        "created_at": time.time(),
        "role": "user",
        "content": "What is the capital of France?",
    }


def construct(size: int) -> Result:
    def ours(_: object) -> None:
        for _number in range(size):
            Message(InstructionContent(instruction="What is the capital of France?"))

    def floor(_: object) -> None:
        for _number in range(size):
            _plain_message()

    return compare(
        f"construct a message, {size:,}",
        Work(ours),
        Work(floor),
        floor_name="dict with uuid4 and time",
        count=size,
    )


def add(size: int) -> Result:
    def ours(_: object) -> Session:
        session = Session()
        branch = session.create_branch("main")
        for _number in range(size):
            message = Message(InstructionContent(instruction="What is the capital of France?"))
            session.add_message(message, branches=branch)
        return session

    def floor(_: object) -> object:
        order, by_id = [], {}
        for _number in range(size):
            message = _plain_message()
            order.append(message)
            by_id[message["id"]] = message
        return order, by_id

    return compare(
        f"construct and add to a branch, {size:,}",
        Work(ours),
        Work(floor),
        floor_name="the dict, a list and a dict",
        count=size,
        bar=3,
    )


def encode(size: int) -> Result:
    messages = [Message(content) for content in contents(size)]
    plain = [message.to_dict() for message in messages]
    return compare(
        f"encode, {size:,}",
        Work(lambda _: [message.to_json() for message in messages]),
        Work(lambda _: [json.dumps(message) for message in plain]),
        floor_name="json.dumps of dicts",
        count=size,
    )


def decode(size: int) -> Result:
    lines = [Message(content).to_json() for content in contents(size)]
    return compare(
        f"decode and check, {size:,}",
        Work(lambda _: [Message.from_json(line) for line in lines]),
        Work(lambda _: [json.loads(line) for line in lines]),
        floor_name="json.loads",
        count=size,
    )


def _dump_contents(size: int) -> Work:
    plain = [content.to_dict() for content in contents(size)]
    return Work(lambda _: json.dumps(plain))


def prepare(size: int) -> Result:
    def ours(given: tuple[Session, Branch]) -> object:
        session, branch = given
        return prepare_messages_for_chat(session.messages, branch, to_chat=True)

    return compare(
        f"prepare for chat, {size:,}",
        Work(ours, lambda: conversation(size)),
        _dump_contents(size),
        floor_name="json.dumps of the contents",
        count=size,
        bar=1.5,
    )


def prepare_again(size: int) -> Result:
    def first(given: tuple[Session, Branch]) -> object:
        session, branch = given
        return prepare_messages_for_chat(session.messages, branch, to_chat=True)

    def prepared() -> tuple[Session, Branch]:
        session, branch = conversation(size)
        prepare_messages_for_chat(session.messages, branch, to_chat=True)
        session.add_message(Message(InstructionContent(instruction="more")), branches=branch)
        return session, branch

    return compare(
        f"prepare again after one more, {size:,}",
        Work(first, prepared),
        Work(first, lambda: conversation(size)),
        floor_name="the first time",
        count=size,
        bar=0.3,
    )


def native(size: int) -> Result:
    session, branch = conversation(size)
    return compare(
        f"prepare with tool calls, {size:,}",
        Work(lambda _: to_model_messages(session.messages, branch)),
        _dump_contents(size),
        floor_name="json.dumps of the contents",
        count=size,
    )


def remove(size: int) -> Result:
    def filled() -> tuple[Session, list[uuid.UUID]]:
        session, branch = conversation(size)
        return session, list(branch)

    def ours(given: tuple[Session, list[uuid.UUID]]) -> None:
        session, ids = given
        for uid in ids:
            session.messages.remove(uid)

    def floor(by_id: dict[uuid.UUID, int]) -> None:
        for uid in list(by_id):
            del by_id[uid]

    return compare(
        f"remove one by one, {size:,}",
        Work(ours, filled),
        Work(floor, lambda: {uuid.uuid4(): number for number in range(size)}),
        floor_name="del from a dict by UUID",
        count=size,
    )


def fork() -> Iterator[Result]:
    small, large = 100, 100_000
    forks = 200

    def source(size: int) -> tuple[Session, Branch, list[uuid.UUID]]:
        session = Session()
        branch = session.create_branch("main")
        for number in range(size):
            session.add_message(Message(InstructionContent(str(number))), branches=branch)
        return session, branch, list(branch)

    sources = {size: source(size) for size in (small, large)}

    def ours(size: int) -> Work:
        def forked(_: object) -> object:
            session, branch, _ids = sources[size]
            return [session.fork(branch) for _number in range(forks)]

        return Work(forked)

    def copied(size: int) -> Work:
        ids = sources[size][2]
        return Work(lambda _: [ids.copy() for _number in range(forks)])

    for size in (small, large):
        yield compare(
            f"fork, {size:,} messages",
            ours(size),
            copied(size),
            floor_name="copy of a list of ids",
            count=forks,
        )
    yield compare(
        f"fork at {large:,} beside {small:,}",
        ours(large),
        ours(small),
        floor_name=f"fork at {small:,}",
        count=forks,
        bar=1.5,
    )


def memory() -> Result:
    size = 10_000
    texts = [f"message {number}" for number in range(size)]
    tracemalloc.start()
    session = Session()
    branch = session.create_branch("main")
    before, _ = tracemalloc.get_traced_memory()
    for text in texts:
        session.add_message(Message(InstructionContent(text)), branches=branch)
    ours = tracemalloc.get_traced_memory()[0] - before
    plain = [dict(_plain_message(), content=text) for text in texts]
    floor = tracemalloc.get_traced_memory()[0] - before - ours
    tracemalloc.stop()
    del plain
    return Result(
        f"memory without texts, {size:,} (8 MB allowed: {ours / 1e6:.1f} used)",
        ours / 1e6,
        floor / 1e6,
        "the dicts in a list",
        unit="MB",
        bar=8e6 / floor,
    )


def imports() -> Result:
    def importing(statement: str) -> Work:
        command = [sys.executable, "-c", statement]
        return Work(lambda _: subprocess.run(command, check=True))

    return compare(
        "import sennit",
        importing("import sennit"),
        importing("from pydantic import BaseModel"),
        floor_name="from pydantic import BaseModel",
        bar=1.5,
        rounds=9,
    )
