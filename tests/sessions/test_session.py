"""Sessions as people use them: messages once, branches through them, nothing half done."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any, cast
from uuid import UUID, uuid4

import pytest

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Branch,
    ContextPart,
    ExistsError,
    ImagePart,
    InstructionContent,
    InvalidTypeError,
    Message,
    MessageRole,
    NotFoundError,
    OutOfRangeError,
    Session,
    SystemContent,
    TextPart,
    ToolPart,
    ValidationError,
    prepare_messages_for_chat,
    to_model_messages,
)
from sennit.containers import Flow, Progression
from sennit.sessions.segments import tail_of


def user(text: str) -> Message:
    return Message(InstructionContent(instruction=text))


def assistant(text: str) -> Message:
    return Message(AssistantResponseContent(assistant_response=text))


def system(text: str) -> Message:
    return Message(SystemContent(system_message=text))


def filled(session: Session, count: int, name: str = "main") -> Branch:
    branch = session.create_branch(name)
    for number in range(count):
        session.add_message(user(f"message {number}"), branches=branch)
    return branch


def said(branch: Branch) -> list[str]:
    return [message.content.to_dict().popitem()[1] for message in branch.messages]


def test_a_session_starts_with_no_branch_and_no_message() -> None:
    session = Session()
    assert len(session.branches) == 0
    assert len(session.messages) == 0
    assert session.user == "user"


def test_a_message_on_no_branch_is_legal() -> None:
    session = Session()
    branch = session.create_branch("main")
    message = session.add_message(user("alone"))
    assert message.id in session.messages
    assert message.id not in branch


def test_one_message_on_several_branches_is_stored_once() -> None:
    session = Session()
    a, b = session.create_branch("a"), session.create_branch("b")
    message = session.add_message(user("both"), branches=[a, "b", a.id])
    assert list(a) == list(b) == [message.id]
    assert len(session.messages) == 1


def test_adding_a_stored_message_only_attaches_it_where_it_is_missing() -> None:
    session = Session()
    a, b = session.create_branch("a"), session.create_branch("b")
    message = session.add_message(user("once"), branches=a)
    again = Message.from_json(message.to_json())
    assert session.add_message(again, branches=[a, b]) is message
    assert list(a) == list(b) == [message.id]


def test_the_same_id_with_another_content_is_refused_and_changes_nothing() -> None:
    session = Session()
    branch = session.create_branch("a")
    other = session.create_branch("b")
    message = session.add_message(user("first"), branches=branch)
    forged = Message(InstructionContent(instruction="second"), id=message.id)
    with pytest.raises(ExistsError, match=str(message.id)):
        session.add_message(forged, branches=other)
    assert len(other) == 0
    assert session.messages[message.id] is message


def test_an_unknown_branch_among_several_leaves_nothing_half_added() -> None:
    session = Session()
    branch = session.create_branch("known")
    with pytest.raises(NotFoundError, match="'unknown'"):
        session.add_message(user("x"), branches=[branch, "unknown"])
    assert len(branch) == 0
    assert len(session.messages) == 0


def test_a_branch_of_another_session_is_refused() -> None:
    ours, theirs = Session(), Session()
    foreign = theirs.create_branch("main")
    with pytest.raises(NotFoundError, match="another session"):
        ours.add_message(user("x"), branches=foreign)
    with pytest.raises(NotFoundError, match="another session"):
        ours.fork(foreign)
    with pytest.raises(NotFoundError):
        ours.get_branch(foreign)
    assert len(ours.messages) == 0
    assert len(foreign) == 0


@pytest.mark.parametrize("junk", [None, 3, "text", {"instruction": "x"}, InstructionContent()])
def test_what_is_neither_message_nor_role_is_refused(junk: object) -> None:
    session = Session()
    with pytest.raises(ValidationError):
        session.add_message(junk, "parts")  # pyright: ignore
    assert len(session.messages) == 0


def test_branches_are_found_by_id_name_and_themselves() -> None:
    session = Session()
    branch = session.create_branch("main")
    assert session.get_branch("main") is branch
    assert session.get_branch(branch.id) is branch
    assert session.get_branch(str(branch.id)) is branch
    assert session.get_branch(branch) is branch
    assert session.get_branch("none", None) is None
    assert session.get_branch(uuid4(), "fallback") == "fallback"
    with pytest.raises(NotFoundError, match="there are: 'main'"):
        session.get_branch("none")
    with pytest.raises(KeyError):
        session.get_branch(uuid4())


def test_a_taken_or_empty_branch_name_is_refused() -> None:
    session = Session()
    branch = filled(session, 1)
    with pytest.raises(ExistsError, match="'main'"):
        session.create_branch("main")
    with pytest.raises(ExistsError, match="'main'"):
        session.fork(branch, name="main")
    with pytest.raises(ValidationError):
        session.create_branch("")
    assert len(session.branches) == 1


def test_automatic_names_never_collide() -> None:
    session = Session()
    main = filled(session, 1)
    session.create_branch("branch_1")
    session.create_branch("main_fork_2")
    names = [session.create_branch().name for _ in range(3)]
    forks = [session.fork(main).name for _ in range(3)]
    forks += [session.fork(forks[-1]).name]
    session.remove_branch(forks[0])
    forks += [session.fork(main).name]
    assert len({*names, *forks, "branch_1", "main_fork_2"}) == len(names) + len(forks) + 2


def test_fork_names_do_not_grow_with_forks_of_forks() -> None:
    session = Session()
    branch = filled(session, 1)
    for _ in range(100):
        branch = session.fork(branch)
    assert len(branch.name) < 20


def test_the_default_branch_is_made_when_first_needed() -> None:
    session = Session()
    assert len(session.branches) == 0
    main = session.default_branch
    assert main.name == "main"
    assert session.default_branch is main


def test_a_default_branch_made_by_hand_is_used() -> None:
    session = Session()
    main = session.create_branch("main", resources={"gpt4"})
    session.add_message("user", [TextPart("Hello")])
    assert len(main) == 1
    assert session.default_branch is main


def test_removing_a_branch_keeps_its_messages_and_its_forks() -> None:
    session = Session()
    main = filled(session, 3)
    fork = session.fork(main)
    assert session.remove_branch("main") is main
    assert "main" not in [branch.name for branch in session.branches]
    assert len(session.messages) == 3
    assert said(fork) == ["message 0", "message 1", "message 2"]
    assert session.create_branch("main") is not main
    with pytest.raises(NotFoundError):
        session.add_message(user("x"), branches=main)


def test_removing_a_message_takes_it_off_every_branch() -> None:
    session = Session()
    main = filled(session, 4)
    early, late = session.fork(main, at=1), session.fork(main)
    session.add_message(user("late"), branches=late)
    victim = main[1]
    session.messages.remove(victim)
    assert victim not in session.messages
    assert [victim in branch for branch in (main, early, late)] == [False] * 3
    assert said(main) == ["message 0", "message 2", "message 3"]
    assert said(early) == ["message 0"]
    assert said(late) == ["message 0", "message 2", "message 3", "late"]
    with pytest.raises(NotFoundError):
        session.remove_message(victim)


def test_removing_a_system_message_leaves_the_branch_without_one() -> None:
    session = Session()
    prompt = system("Be kind")
    branch = session.create_branch("main", system=prompt)
    session.add_message(user("hi"), branches=branch)
    session.remove_message(prompt)
    assert branch.system is None
    assert said(branch) == ["hi"]


def test_setting_a_system_message_after_removing_one_keeps_the_first_user_message() -> None:
    session = Session()
    branch = session.create_branch("main", system=system("old"))
    session.add_message(user("hi"), branches=branch)
    session.set_branch_system(branch, None)
    session.set_branch_system(branch, system("new"))
    assert said(branch) == ["new", "hi"]
    assert len(branch) == 2


def test_a_system_message_added_to_a_branch_becomes_its_own() -> None:
    session = Session()
    branch = filled(session, 2)
    session.add_message(system("one"), branches=branch)
    session.add_message(system("two"), branches=branch)
    assert said(branch) == ["two", "message 0", "message 1"]
    assert branch.system is not None
    assert session.get_branch_system(branch) is branch.system
    assert branch[0] == branch.system.id


def test_only_a_system_content_can_be_a_system_message() -> None:
    session = Session()
    stored = session.add_message(user("not a system message"))
    with pytest.raises(InvalidTypeError, match="SystemContent"):
        session.create_branch("a", system=user("x"))
    with pytest.raises(InvalidTypeError, match="SystemContent"):
        session.create_branch("a", system=stored.id)
    with pytest.raises(NotFoundError):
        session.create_branch("a", system=uuid4())
    assert len(session.branches) == 0
    assert len(session.messages) == 1


def test_a_refused_branch_stores_no_system_message() -> None:
    session = Session()
    session.create_branch("main")
    with pytest.raises(ExistsError):
        session.create_branch("main", system=system("x"))
    assert len(session.messages) == 0


def test_parts_become_messages_on_the_default_branch() -> None:
    session = Session(user="ada")
    group = session.add_message("user", [TextPart("Look"), ImagePart("https://example.com/a.png")])
    answer = session.add_message(
        "assistant",
        [
            TextPart("Here's how..."),
            ContextPart(uri="viking://user/memories/profile.md"),
            ToolPart("search", {"q": "x"}, output=None),
        ],
    )
    branch = session.default_branch
    assert [message.role for message in branch.messages] == [
        MessageRole.USER,
        MessageRole.ASSISTANT,
        MessageRole.ASSISTANT,
        MessageRole.TOOL,
    ]
    assert branch.messages[0].sender == "ada"
    assert branch.messages[1].sender == MessageRole.ASSISTANT
    assert group.id.startswith("msg_")
    assert UUID(group.id[4:]).version == 7
    assert answer.messages == tuple(branch.messages[1:])


def test_refused_parts_store_nothing() -> None:
    session = Session()
    for role, parts in (
        ("system", [ContextPart("viking://user/a.md")]),
        ("tool", [TextPart("x")]),
        ("user", [TextPart("fine"), 7]),
        ("user", []),
        ("assistant", [ImagePart("https://example.com/a.png")]),
        ("user", [ToolPart("search", {})]),
    ):
        with pytest.raises(ValidationError):
            session.add_message(role, parts)  # pyright: ignore
    assert len(session.messages) == 0
    assert len(session.branches) == 0


def test_a_group_of_contexts_alone_is_skipped_by_prompts() -> None:
    session = Session()
    session.add_message("user", [ContextPart("viking://resources/a.md", "about a")])
    branch = session.default_branch
    assert len(branch) == 1
    assert prepare_messages_for_chat(session.messages, branch) == []


def test_conversations_are_the_same_messages_and_branches() -> None:
    session = Session()
    branch = filled(session, 2)
    flow = session.conversations
    assert isinstance(flow, Flow)
    assert flow.items is session.messages
    assert flow.get_progression("main") is branch
    message = user("through the flow")
    flow.add_item(message, progressions="main")
    assert branch[-1] == message.id
    flow.remove_item(message)
    assert message not in branch
    with pytest.raises(ValidationError, match="create_branch"):
        flow.add_progression(branch)


def test_a_flow_becomes_a_session() -> None:
    messages = [user("a"), user("b"), user("c")]
    order = Progression([messages[2], messages[0]], name="picked")
    session = Session(conversations=Flow(messages, [order]))
    assert len(session.messages) == 3
    assert said(session.get_branch("picked")) == ["c", "a"]


def test_the_pile_of_messages_is_guarded() -> None:
    session = Session()
    branch = filled(session, 3)
    message = user("direct")
    session.messages.add(message)
    assert message not in branch
    with pytest.raises(ExistsError):
        session.messages.add(message)
    with pytest.raises(InvalidTypeError):
        session.messages.add("text")  # pyright: ignore
    session.messages.clear()
    assert len(branch) == len(session.messages) == 0


def test_many_threads_adding_lose_nothing() -> None:
    session = Session()
    main, other = session.create_branch("main"), session.create_branch("other")
    start = threading.Barrier(8)
    mine: list[list[Message]] = [[] for _ in range(8)]

    def work(number: int) -> None:
        start.wait()
        for count in range(200):
            target = main if count % 2 else [main, other]
            mine[number].append(session.add_message(user(f"{number}-{count}"), branches=target))
            if count % 50 == 0:
                session.fork(main)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.messages) == len(main) == 1600
    assert len(other) == 800
    assert len({branch.name for branch in session.branches}) == 2 + 8 * 4
    order = list(main)
    for messages in mine:
        places = [order.index(message.id) for message in messages[:50]]
        assert places == sorted(places)


def test_many_threads_asking_for_the_default_branch_get_one() -> None:
    session = Session()
    start = threading.Barrier(8)
    found: list[Branch] = []

    def work() -> None:
        start.wait()
        found.append(session.default_branch)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({branch.id for branch in found}) == len(session.branches) == 1


def test_an_index_past_the_end_names_the_range() -> None:
    session = Session()
    branch = filled(session, 3)
    with pytest.raises(OutOfRangeError, match="length 3"):
        session.fork(branch, at=3)
    with pytest.raises(IndexError):
        branch[-4]
    with pytest.raises(NotFoundError):
        session.fork(branch, at=user("never added"))
    assert len(session.branches) == 1


def test_a_request_shows_in_repr_without_its_whole_text() -> None:
    message = Message(ActionRequestContent(function="search", arguments={"q": "x" * 500}))
    assert len(repr(message)) < 150
    assert "search" in repr(message)


def test_erasing_a_message_keeps_the_history_shared() -> None:
    session = Session()
    main = filled(session, 50)
    forks = [session.fork(main) for _ in range(20)]
    early = session.fork(main, at=10)
    session.add_message(user("early"), branches=early)
    session.remove_message(main[3])
    assert all(len(tail_of(fork)) == 0 for fork in forks)
    assert all(list(fork) == list(main) for fork in forks)
    assert said(early) == [f"message {n}" for n in range(11) if n != 3] + ["early"]
    session.add_message(user("after"), branches=forks[0])
    assert said(forks[0])[-2:] == ["message 49", "after"]


def test_a_reloaded_message_is_recognised_by_what_it_says() -> None:
    from pydantic import BaseModel

    class Answer(BaseModel):
        text: str

    session = Session()
    branch = session.create_branch("main")
    for content in (
        InstructionContent(instruction="x", response_model=Answer),
        SystemContent(system_message="S", datetime_factory=lambda: "noon"),
    ):
        message = session.add_message(Message(content), branches=branch)
        again = Message.from_json(message.to_json())
        assert session.add_message(again, branches=branch) is message
    one = session.add_message(Message(ActionResponseContent(result=1)))
    with pytest.raises(ExistsError):
        session.add_message(Message(ActionResponseContent(result=True), id=one.id))


def test_an_empty_list_of_branches_means_none() -> None:
    session = Session()
    session.add_message("user", "nowhere", branches=[])
    assert len(session.messages) == 1
    assert len(session.branches) == 0


def test_a_refused_branch_does_not_use_up_a_name() -> None:
    session = Session()
    with pytest.raises(ValidationError):
        session.create_branch(system=user("no system message"))
    assert session.create_branch().name == "branch_1"


@pytest.mark.parametrize("given", [SystemContent("x"), 5])
def test_a_system_message_that_is_no_message_names_the_way_out(given: object) -> None:
    session = Session()
    with pytest.raises(InvalidTypeError, match="a text or a Message with a SystemContent"):
        session.create_branch(system=given)  # pyright: ignore


def test_the_pile_of_branches_knows_names() -> None:
    session = Session()
    main = filled(session, 1)
    assert session.branches["main"] is main
    assert session.branches[0] is main
    assert "main" in session.branches
    assert "other" not in session.branches
    with pytest.raises(NotFoundError, match="'main'"):
        session.branches["other"]


@pytest.mark.parametrize("name", ["a\0b", "\ud800", 5])
def test_a_name_no_store_could_keep_is_refused(name: object) -> None:
    session = Session()
    with pytest.raises(ValidationError):
        session.create_branch(name)  # pyright: ignore
    assert len(session.branches) == 0


def test_a_user_must_be_a_role_a_name_or_an_id() -> None:
    assert Session(user="assistant").user is MessageRole.ASSISTANT
    with pytest.raises(InvalidTypeError, match="user"):
        Session(user=1)  # pyright: ignore


@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_and_its_branches_say_why_they_cannot_be_copied(copying: Any) -> None:
    session = Session()
    for one in (session, filled(session, 1)):
        with pytest.raises(InvalidTypeError, match="fork"):
            copying(one)


def test_readers_never_see_a_half_removed_message() -> None:
    session = Session()
    branch = session.create_branch("main", system=system("S"))
    done = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not done.is_set():
                assert len(branch.messages) >= 0
                prepare_messages_for_chat(session.messages, branch, to_chat=True)
                to_model_messages(session.messages, branch)
                prompt = branch.system
                assert prompt is None or prompt.role is MessageRole.SYSTEM
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(150):
        messages = [session.add_message(user(f"{number}"), branches=branch) for _ in range(3)]
        session.set_branch_system(branch, system(f"S{number}"))
        session.remove_message(messages[1])
        branch.remove(messages[0])
        session.set_branch_system(branch, None)
    done.set()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(branch) == 150


def test_an_erased_text_is_not_kept_by_what_was_prepared() -> None:
    session = Session()
    branch = session.create_branch("main")
    message = session.add_message(user("secret"), branches=branch)
    prepare_messages_for_chat(session.messages, branch, to_chat=True)
    gone = weakref.ref(message)
    session.remove_message(message)
    del message
    gc.collect()
    assert gone() is None
    assert branch.memo is None


@pytest.mark.parametrize("kept", [False, True])
def test_a_group_is_removed_with_all_of_its_messages(tmp_path: Path, kept: bool) -> None:
    with Session(store=tmp_path / "s.db" if kept else None) as session:
        session.add_message("user", "before")
        called = ToolPart("look_up", {"knot": "bowline"}, output="40 cm")
        group = session.add_message("assistant", [TextPart("one"), called, TextPart("two")])
        assert len(group.messages) == 4
        assert session.remove_message(group) is group
        assert said(session.default_branch) == ["before"]
        assert len(session.messages) == 1
        with pytest.raises(NotFoundError):
            session.remove_message(group)
        two = [session.add_message("user", [TextPart(word)]) for word in ("two", "three")]
        assert len(session.remove_messages([two[0], *two[1].messages])) == 2
        with pytest.raises(InvalidTypeError, match="the group that add_message returned"):
            session.remove_message(cast("Any", 7))
