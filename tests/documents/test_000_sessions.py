"""Document 000 (sessions, branches, messages), example by example, in its order.

Each docstring opens with the heading under which the document shows the example; the code is the
document's, with only the import line changed, and what it prints stands beside it. Where SPEC §1
rules otherwise, its form is asserted and the ruling is named. Where the document leaves a model or
a tool to the reader, a scripted one stands in.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import sys
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from typing import Any, get_args
from uuid import UUID, uuid4

import pytest
from pydantic import BaseModel

import sennit
from sennit import (
    IPU,
    AccessError,
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    Branch,
    InstructionContent,
    Message,
    MessageContent,
    MessageRole,
    NotFoundError,
    Operation,
    OperationRegistry,
    SenderRecipient,
    ServiceRegistry,
    Session,
    SystemContent,
    Tool,
    iModel,
    prepare_messages_for_chat,
)
from sennit.containers import Element, Flow, Pile, Progression
from sennit.testing import ScriptedModel

SECTIONS = (
    "000 · Overview",
    "000 · Module Exports",
    "000 · Architecture Overview · Session → Branch → Message Hierarchy",
    "000 · Architecture Overview · Message Content Discriminated Union",
    "000 · Quick Reference",
    "000 · Core Workflows · Creating a Session with Branches",
    "000 · Core Workflows · Multi-Branch Workflow",
    "000 · Core Workflows · Structured Output with Response Models",
    "000 · Core Workflows · Service Integration and Execution",
    "000 · Core Workflows · Preparing Messages for Chat APIs",
    "000 · Design Philosophy · Why Session → Branch → Message?",
    "000 · Design Philosophy · Why Discriminated Union for MessageContent?",
    "000 · Design Philosophy · Why Auto-Derived Roles?",
    "000 · Design Philosophy · Why Branch-Level Access Control?",
    "000 · Common Pitfalls · Pitfall 1: Mutating Messages After Adding to Session",
    "000 · Common Pitfalls · Pitfall 2: Adding Messages Without Branches",
    "000 · Common Pitfalls · Pitfall 3: Manual Role Assignment",
    "000 · Common Pitfalls · Pitfall 4: Forgetting to Validate Access Control",
    "000 · Examples · Example 1: Basic Conversation",
    "000 · Examples · Example 2: Forking for A/B Testing",
    "000 · Examples · Example 3: Structured Output Workflow",
    "000 · Examples · Example 4: Tool Calling Workflow",
    "000 · Examples · Example 5: Multi-Service Coordination",
    "SPEC §1 · Ruling 6",
    "SPEC §1 · Ruling 8",
    "SPEC §1 · Ruling 9",
    "SPEC §1 · prepare_messages_for_chat",
)


class Search(BaseModel):
    """Search the web."""

    query: str


class Verdict(BaseModel):
    ok: bool


class ApprovedSchema(BaseModel):
    ok: bool


class ExperimentalSchema(BaseModel):
    ok: bool


def look_up(query: str) -> str:
    """Search the web."""
    return f"found {query}"


def says(instruction: str, **fields: Any) -> Message:
    return Message(content=InstructionContent(instruction=instruction, **fields))


def answers(text: str) -> Message:
    return Message(content=AssistantResponseContent(assistant_response=text))


def system(text: str) -> Message:
    return Message(content=SystemContent(system_message=text))


def returns(**fields: Any) -> Message:
    return Message(content=ActionResponseContent(**fields))


def parameters(function: Any) -> dict[str, Any]:
    """Names and defaults, without `self`."""
    found = inspect.signature(function).parameters
    return {name: given.default for name, given in found.items() if name != "self"}


def keyword_only(function: Any) -> set[str]:
    found = inspect.signature(function).parameters.values()
    return {given.name for given in found if given.kind is inspect.Parameter.KEYWORD_ONLY}


def test_one_session_holds_many_branches_of_typed_messages() -> None:
    """000 · Overview"""
    session = Session()
    one = session.create_branch(name="one")
    other = session.create_branch(name="other")
    session.add_message(says("Hello"), branches=one)
    session.add_message(answers("Hi"), branches=[one, other])

    assert [branch.name for branch in session.branches] == ["one", "other"]
    assert [message.role.value for message in session.messages] == ["user", "assistant"]
    assert (len(one), len(other)) == (2, 1)


def test_all_names_of_the_module_can_be_imported() -> None:
    """000 · Module Exports"""
    from sennit import (
        ActionRequestContent,
        ActionResponseContent,
        AssistantResponseContent,
        Branch,
        InstructionContent,
        Message,
        MessageContent,
        MessageRole,
        SenderRecipient,
        Session,
        SystemContent,
        prepare_messages_for_chat,
    )

    named = {
        "Session": Session,
        "Branch": Branch,
        "Message": Message,
        "MessageContent": MessageContent,
        "MessageRole": MessageRole,
        "SenderRecipient": SenderRecipient,
        "SystemContent": SystemContent,
        "InstructionContent": InstructionContent,
        "AssistantResponseContent": AssistantResponseContent,
        "ActionRequestContent": ActionRequestContent,
        "ActionResponseContent": ActionResponseContent,
        "prepare_messages_for_chat": prepare_messages_for_chat,
    }
    assert named.keys() <= set(sennit.__all__)


def test_a_session_is_a_flow_of_messages_and_branches() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    session = Session()

    assert isinstance(session.conversations, Flow)
    assert isinstance(session.messages, Pile)
    assert isinstance(session.branches, Pile)
    assert session.conversations.items is session.messages
    assert session.conversations.progressions is session.branches


def test_a_session_takes_over_a_flow_of_messages() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    one, two = says("One"), says("Two")
    flow = Flow([one, two], [Progression([two.id], name="main")])

    session = Session(conversations=flow)

    assert list(session.messages) == [one, two]
    assert list(session.get_branch("main")) == [two.id]


def test_a_session_starts_with_neither_messages_nor_branches() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    session = Session()

    assert (len(session.messages), len(session.branches)) == (0, 0)
    assert session.user == "user"
    assert isinstance(session, Element)


def test_a_branch_is_a_progression_of_message_ids_with_system_capabilities_and_resources() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    session = Session()
    first, second = system("Be brief"), says("Hello")
    branch = session.create_branch(
        name="main", system=first, capabilities={"Report"}, resources={"gpt4"}
    )
    session.add_message(second, branches=branch)

    assert issubclass(Branch, Progression)
    assert isinstance(branch, Branch)
    assert list(branch) == [first.id, second.id]
    assert all(isinstance(uid, UUID) for uid in branch)
    assert branch[0] == first.id
    assert branch.system is first
    assert branch.capabilities == {"Report"}
    assert branch.resources == {"gpt4"}


def test_a_message_is_an_element_with_a_content_a_sender_and_a_recipient() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    content = InstructionContent(instruction="Hello")
    message = Message(content=content, sender="alice", recipient="bob")

    assert isinstance(message, Element)
    assert isinstance(message.id, UUID)
    assert message.content is content
    assert (message.sender, message.recipient) == ("alice", "bob")


def test_a_session_stores_a_message_once_and_finds_it_by_id() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    session = Session()
    message = says("Shared")
    branches = [session.create_branch(name=name) for name in ("a", "b", "c")]
    session.add_message(message, branches=branches)

    assert len(session.messages) == 1
    assert session.messages[message.id] is message
    assert all(list(branch) == [message.id] for branch in branches)


def test_a_session_manages_services_and_operations() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    session = Session()

    assert isinstance(session.services, ServiceRegistry)
    assert isinstance(session.operations, OperationRegistry)
    built_in = ["generate", "parse", "communicate", "operate", "react"]
    assert session.operations.list_names() == built_in
    assert session.services.list_names() == []

    services, operations = ServiceRegistry(), OperationRegistry()
    given = Session(services=services, operations=operations)
    assert (given.services, given.operations) == (services, operations)


def test_a_branch_is_found_by_id_by_name_or_by_itself() -> None:
    """000 · Architecture Overview · Session → Branch → Message Hierarchy"""
    session = Session()
    branch = session.create_branch(name="main")

    assert session.get_branch("main") is branch
    assert session.get_branch(branch.id) is branch
    assert session.get_branch(branch) is branch
    assert session.branches[branch.id] is branch
    assert session.get_branch("missing", None) is None
    with pytest.raises(NotFoundError):
        session.get_branch("missing")


@pytest.mark.parametrize(
    ("content", "role"),
    [
        (SystemContent, MessageRole.SYSTEM),
        (InstructionContent, MessageRole.USER),
        (AssistantResponseContent, MessageRole.ASSISTANT),
        (ActionRequestContent, MessageRole.ASSISTANT),
        (ActionResponseContent, MessageRole.TOOL),
    ],
)
def test_each_kind_of_content_carries_its_role_on_the_class(
    content: type[MessageContent], role: MessageRole
) -> None:
    """000 · Architecture Overview · Message Content Discriminated Union"""
    assert issubclass(content, MessageContent)
    assert content.role is role
    assert content().role is role
    assert "role" not in inspect.signature(content).parameters


def test_message_role_has_five_members() -> None:
    """000 · Quick Reference"""
    assert {role.name: role.value for role in MessageRole} == {
        "SYSTEM": "system",
        "USER": "user",
        "ASSISTANT": "assistant",
        "TOOL": "tool",
        "UNSET": "unset",
    }


def test_a_sender_or_recipient_is_a_role_a_string_or_a_uuid() -> None:
    """000 · Quick Reference"""
    assert get_args(SenderRecipient) == (MessageRole, str, UUID)


def test_create_branch_takes_a_name_and_by_keyword_system_capabilities_and_resources() -> None:
    """000 · Quick Reference"""
    assert parameters(Session.create_branch) == {
        "name": None,
        "system": None,
        "capabilities": None,
        "resources": None,
    }
    assert keyword_only(Session.create_branch) == {"system", "capabilities", "resources"}


def test_fork_takes_a_branch_and_the_rest_by_keyword() -> None:
    """000 · Quick Reference"""
    assert parameters(Session.fork) == {
        "branch": inspect.Parameter.empty,
        "at": None,
        "name": None,
        "capabilities": None,
        "resources": None,
        "system": None,
    }
    assert keyword_only(Session.fork) == {"at", "name", "capabilities", "resources", "system"}


def test_prepare_messages_for_chat_takes_messages_progression_new_instruction_and_to_chat() -> None:
    """000 · Quick Reference"""
    assert parameters(prepare_messages_for_chat) == {
        "messages": inspect.Parameter.empty,
        "progression": None,
        "new_instruction": None,
        "to_chat": False,
    }


def test_creating_a_session_with_branches() -> None:
    """000 · Core Workflows · Creating a Session with Branches"""
    from sennit import InstructionContent, Message, Session, SystemContent

    session = Session()

    system_msg = Message(content=SystemContent(system_message="You are a helpful assistant"))
    branch = session.create_branch(
        name="main",
        system=system_msg,
        capabilities={"Analysis", "Report"},
        resources={"gpt4", "search_tool"},
    )

    user_msg = Message(content=InstructionContent(instruction="Analyze this data"))
    session.add_message(user_msg, branches=branch)

    messages = [session.messages[uid] for uid in branch]

    assert messages == [system_msg, user_msg]
    assert [message.rendered for message in messages] == [
        "You are a helpful assistant",
        "Instruction: Analyze this data",
    ]
    assert branch.name == "main"
    assert branch.capabilities == {"Analysis", "Report"}
    assert branch.resources == {"gpt4", "search_tool"}
    assert session.get_branch_system(branch) is system_msg


def test_multi_branch_workflow_prints_three_messages_per_branch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """000 · Core Workflows · Multi-Branch Workflow

    SPEC §1 · Ruling 6: three per branch, where the document counts four.
    """
    from sennit import InstructionContent, Message, Session

    session = Session()
    main_branch = session.create_branch(name="main")

    msg1 = Message(content=InstructionContent(instruction="Hello"))
    msg2 = Message(content=InstructionContent(instruction="Analyze X"))
    session.add_message(msg1, branches=main_branch)
    session.add_message(msg2, branches=main_branch)

    experimental_branch = session.fork(
        main_branch,
        name="experimental",
        capabilities=True,
        resources=True,
        system=True,
    )

    main_msg = Message(content=InstructionContent(instruction="Continue with approach A"))
    exp_msg = Message(content=InstructionContent(instruction="Try approach B"))

    session.add_message(main_msg, branches=main_branch)
    session.add_message(exp_msg, branches=experimental_branch)

    print(f"Main: {len(main_branch)} messages")
    print(f"Experimental: {len(experimental_branch)} messages")

    assert capsys.readouterr().out == "Main: 3 messages\nExperimental: 3 messages\n"
    assert list(main_branch) == [msg1.id, msg2.id, main_msg.id]
    assert list(experimental_branch) == [msg1.id, msg2.id, exp_msg.id]
    assert len(session.messages) == 4


def test_fork_with_true_copies_capabilities_resources_and_the_system_message() -> None:
    """000 · Core Workflows · Multi-Branch Workflow"""
    session = Session()
    main = session.create_branch(
        name="main", system=system("Be brief"), capabilities={"Report"}, resources={"gpt4"}
    )
    session.add_message(says("Hello"), branches=main)

    fork = session.fork(main, name="fork", capabilities=True, resources=True, system=True)

    assert fork.capabilities == {"Report"}
    assert fork.resources == {"gpt4"}
    assert fork.system is main.system
    assert list(fork) == list(main)
    assert len(session.messages) == 2


def test_fork_without_true_gets_the_history_but_no_grants_and_no_system_message() -> None:
    """000 · Core Workflows · Multi-Branch Workflow"""
    session = Session()
    main = session.create_branch(
        name="main", system=system("Be brief"), capabilities={"Report"}, resources={"gpt4"}
    )
    hello = says("Hello")
    session.add_message(hello, branches=main)

    fork = session.fork(main)

    assert fork.capabilities == set()
    assert fork.resources == set()
    assert fork.system is None
    assert list(fork) == [hello.id]


def test_fork_takes_grants_and_a_system_message_of_its_own() -> None:
    """000 · Core Workflows · Multi-Branch Workflow"""
    session = Session()
    main = session.create_branch(name="main", system=system("Be brief"), resources={"gpt4"})
    other = system("Be thorough")

    fork = session.fork(main, capabilities={"Draft"}, resources={"claude"}, system=other)

    assert fork.capabilities == {"Draft"}
    assert fork.resources == {"claude"}
    assert fork.system is other
    assert main.resources == {"gpt4"}
    assert [message.rendered for message in main.messages] == ["Be brief"]


def test_fork_records_where_it_came_from() -> None:
    """000 · Core Workflows · Multi-Branch Workflow"""
    session = Session()
    main = session.create_branch(name="main")
    session.add_message(says("Hello"), branches=main)

    origin = session.fork(main).metadata["forked_from"]

    assert origin.keys() == {"branch_id", "branch_name", "created_at", "message_count"}
    assert origin["branch_id"] == str(main.id)
    assert origin["branch_name"] == "main"
    assert datetime.fromisoformat(origin["created_at"]) == main.created_at
    assert origin["message_count"] == 1


def test_structured_output_prints_context_types_and_response_format(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """000 · Core Workflows · Structured Output with Response Models

    SPEC §1 · Ruling 1: one blank line between sections, and the closing line of document 001.
    """
    from pydantic import BaseModel

    from sennit import InstructionContent, Message, Session

    class Analysis(BaseModel):
        summary: str
        score: float
        recommendations: list[str]

    session = Session()
    branch = session.create_branch(name="analysis", capabilities={"Analysis"})

    instruction = Message(
        content=InstructionContent(
            instruction="Analyze the quarterly results",
            context=["Q3 revenue: $1.2M", "Q3 expenses: $800K"],
            response_model=Analysis,
        )
    )
    session.add_message(instruction, branches=branch)

    print(instruction.rendered)

    assert capsys.readouterr().out == dedent("""\
        Instruction: Analyze the quarterly results

        Context:
          - Q3 revenue: $1.2M
          - Q3 expenses: $800K

        Output Types:
          interface Analysis {
            summary: string;
            score: number;
            recommendations: string[];
          }

        ResponseFormat:
          **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
          Example structure:
          ```json
          {"summary": "...", "score": 0, "recommendations": ["..."]}
          ```

          Return ONLY valid JSON without markdown code blocks.
        """)
    assert list(branch) == [instruction.id]


def test_service_integration_and_execution() -> None:
    """000 · Core Workflows · Service Integration and Execution"""
    scripted = ScriptedModel(["Hello.", "Data analysed."])
    my_llm_model = iModel(scripted, name="my_llm_model")
    search_tool = Tool(look_up, name="search_tool")
    msg1 = Message(content=InstructionContent(instruction="Hello"))
    msg2 = Message(content=InstructionContent(instruction="Analyze this data"))

    async def example() -> None:
        from sennit import Session

        session = Session()
        session.services.register(my_llm_model)
        session.services.register(search_tool)

        branch = session.create_branch(
            name="main",
            resources={"my_llm_model", "search_tool"},
        )

        response = await session.request("my_llm_model", messages=[msg1])

        from sennit import IPU

        ipu = IPU()

        operation = await session.conduct(
            branch=branch,
            operation="generate",
            ipu=ipu,
            imodel="my_llm_model",
            messages=[msg1, msg2],
        )
        assert isinstance(operation, Operation)
        assert (operation.status, len(scripted.requests)) == ("pending", 1)

        result = await operation.invoke()

        assert session.services.list_names() == ["my_llm_model", "search_tool"]
        assert (response.text, result.text) == ("Hello.", "Data analysed.")
        assert ipu.sessions == [session]
        assert len(session.messages) == 0  # generate stores nothing

    asyncio.run(example())
    assert [len(asked.messages) for asked in scripted.requests] == [1, 2]
    scripted.assert_complete()


def test_a_tool_is_requested_like_a_model() -> None:
    """000 · Core Workflows · Service Integration and Execution"""
    session = Session()
    session.services.register(Tool(look_up, name="search_tool"))

    assert asyncio.run(session.request("search_tool", query="rope")) == "found rope"


def test_conduct_validates_resources_and_capabilities_before_anything_runs() -> None:
    """000 · Core Workflows · Service Integration and Execution"""
    model = ScriptedModel([], "my_llm_model")
    session = Session()
    session.services.register(model)
    session.services.register(look_up)
    branch = session.create_branch(name="main", resources={"my_llm_model"})

    async def conducted(**given: Any) -> Operation:
        return await session.conduct(
            branch=branch, operation="generate", imodel="my_llm_model", messages=[], **given
        )

    with pytest.raises(PermissionError, match="'look_up'"):
        asyncio.run(conducted(tools=["look_up"]))
    with pytest.raises(PermissionError, match="'Verdict'"):
        asyncio.run(conducted(response_model=Verdict))
    assert model.requests == []


def test_preparing_messages_for_chat_apis() -> None:
    """000 · Core Workflows · Preparing Messages for Chat APIs

    SPEC §1 · Ruling 6: the tool result prints as nested YAML of the rendered response.
    """
    from sennit import (
        ActionResponseContent,
        AssistantResponseContent,
        InstructionContent,
        Message,
        Session,
        SystemContent,
        prepare_messages_for_chat,
    )

    session = Session()
    branch = session.create_branch(name="main")

    session.add_message(
        Message(content=SystemContent(system_message="You are helpful")), branches=branch
    )
    session.add_message(Message(content=InstructionContent(instruction="Hello")), branches=branch)
    session.add_message(
        Message(content=AssistantResponseContent(assistant_response="Hi there")), branches=branch
    )
    session.add_message(
        Message(content=ActionResponseContent(result={"data": 42})), branches=branch
    )
    session.add_message(
        Message(content=InstructionContent(instruction="Analyze the result")), branches=branch
    )

    chat_messages = prepare_messages_for_chat(
        messages=session.messages,
        progression=branch,
        to_chat=True,
    )

    assert chat_messages == [
        {"role": "user", "content": "Instruction: You are helpful\n\nHello"},
        {"role": "assistant", "content": "Hi there"},
        {
            "role": "user",
            "content": (
                "Instruction: Analyze the result\n\n"
                "Context:\n"
                "  - success: true\n"
                "    result:\n"
                "      data: 42"
            ),
        },
    ]


def test_without_to_chat_the_prepared_messages_are_contents() -> None:
    """000 · Core Workflows · Preparing Messages for Chat APIs"""
    session = Session()
    branch = session.create_branch(name="main")
    for message in (system("You are helpful"), says("Hello"), answers("Hi there")):
        session.add_message(message, branches=branch)

    assert prepare_messages_for_chat(session.messages, branch) == [
        InstructionContent(instruction="You are helpful\n\nHello"),
        AssistantResponseContent(assistant_response="Hi there"),
    ]


def test_prepare_step_1_finds_the_system_message_at_the_beginning() -> None:
    """000 · Core Workflows · Preparing Messages for Chat APIs"""
    messages = [system("You are helpful"), says("Hello")]

    prepared = prepare_messages_for_chat(messages, to_chat=True)

    assert [message["role"] for message in prepared] == ["user"]


def test_prepare_step_2_puts_the_system_text_into_the_first_instruction_alone() -> None:
    """000 · Core Workflows · Preparing Messages for Chat APIs"""
    messages = [system("You are helpful"), says("Hello"), answers("Hi"), says("Bye")]

    assert prepare_messages_for_chat(messages) == [
        InstructionContent(instruction="You are helpful\n\nHello"),
        AssistantResponseContent(assistant_response="Hi"),
        InstructionContent(instruction="Bye"),
    ]


def test_prepare_step_3_puts_tool_results_into_the_context_of_the_next_instruction() -> None:
    """000 · Core Workflows · Preparing Messages for Chat APIs"""
    messages = [
        says("Look it up"),
        answers("One moment"),
        returns(request_id="call_1", result={"papers": ["One"]}),
        returns(request_id="call_2", error="Timeout"),
        says("Sum up", context=["Keep it short"]),
    ]

    prepared = prepare_messages_for_chat(messages, to_chat=True)

    assert [message["role"] for message in prepared] == ["user", "assistant", "user"]
    assert prepared[-1]["content"] == dedent("""\
        Instruction: Sum up

        Context:
          - Keep it short
          - success: true
            request_id: call_1
            result:
              papers:
                - One
          - success: false
            request_id: call_2
            error: Timeout""")


def test_prepare_step_4_joins_consecutive_assistant_responses_with_a_blank_line() -> None:
    """000 · Core Workflows · Preparing Messages for Chat APIs"""
    messages = [says("Go on"), answers("One."), answers("Two."), says("More"), answers("Three.")]

    assert prepare_messages_for_chat(messages, to_chat=True) == [
        {"role": "user", "content": "Instruction: Go on"},
        {"role": "assistant", "content": "One.\n\nTwo."},
        {"role": "user", "content": "Instruction: More"},
        {"role": "assistant", "content": "Three."},
    ]


def test_prepare_step_5_takes_tools_and_response_model_off_historical_instructions() -> None:
    """000 · Core Workflows · Preparing Messages for Chat APIs"""
    messages = [
        says("First", context=["Kept"], tool_schemas=[Search], response_model=Verdict),
        answers("Done"),
    ]
    newest = InstructionContent(instruction="Next", tool_schemas=[Search], response_model=Verdict)

    assert prepare_messages_for_chat(messages, new_instruction=newest) == [
        InstructionContent(instruction="First", context=["Kept"]),
        AssistantResponseContent(assistant_response="Done"),
        newest,
    ]


def test_prepare_puts_the_new_instruction_last_with_waiting_results_in_its_context() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    messages = [says("Look it up"), returns(result=[1, 2])]

    prepared = prepare_messages_for_chat(messages, new_instruction=says("And?"), to_chat=True)

    assert prepared == [
        {"role": "user", "content": "Instruction: Look it up"},
        {
            "role": "user",
            "content": (
                "Instruction: And?\n\n"
                "Context:\n"
                "  - success: true\n"
                "    result:\n"
                "      - 1\n"
                "      - 2"
            ),
        },
    ]


def test_prepare_lets_a_new_instruction_carry_the_system_text_if_it_is_the_first() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    prepared = prepare_messages_for_chat([system("Be brief")], new_instruction=says("Hello"))

    assert prepared == [InstructionContent(instruction="Be brief\n\nHello")]


def test_prepare_keeps_system_text_that_no_instruction_can_carry_as_a_system_message() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    assert prepare_messages_for_chat([system("Be brief"), answers("Yes?")], to_chat=True) == [
        {"role": "system", "content": "Be brief"},
        {"role": "assistant", "content": "Yes?"},
    ]


def test_prepare_skips_later_system_messages() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    messages = [system("First"), says("Hello"), system("Second"), says("Bye")]

    assert prepare_messages_for_chat(messages) == [
        InstructionContent(instruction="First\n\nHello"),
        InstructionContent(instruction="Bye"),
    ]


def test_prepare_gives_trailing_tool_results_a_user_message_of_their_own() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    assert prepare_messages_for_chat([says("Look"), returns(result="found")], to_chat=True) == [
        {"role": "user", "content": "Instruction: Look"},
        {"role": "user", "content": "Context:\n  - success: true\n    result: found"},
    ]


def test_prepare_keeps_tool_requests_where_they_stand() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    request = ActionRequestContent(function="search", arguments={"query": "x"})
    messages = [says("Look"), answers("Wait"), Message(content=request), answers("Found")]

    assert prepare_messages_for_chat(messages, to_chat=True) == [
        {"role": "user", "content": "Instruction: Look"},
        {"role": "assistant", "content": "Wait"},
        {"role": "assistant", "content": "function: search\narguments:\n  query: x"},
        {"role": "assistant", "content": "Found"},
    ]


def test_prepare_changes_none_of_its_inputs() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    session = Session()
    branch = session.create_branch(name="main", system=system("Be brief"))
    for message in (
        says("First", context=["a"], tool_schemas=[Search], response_model=Verdict),
        answers("One"),
        answers("Two"),
        returns(result={"n": 1}),
        says("Last", context=["b"]),
    ):
        session.add_message(message, branches=branch)
    before = [message.to_dict() for message in session.messages]
    ids = list(branch)

    chat = prepare_messages_for_chat(session.messages, branch, to_chat=True)
    chat[0]["content"] = "spoiled by the caller"
    prepared = prepare_messages_for_chat(session.messages, branch, to_chat=True)

    assert [message.to_dict() for message in session.messages] == before
    assert list(branch) == ids
    assert prepared[0]["content"].startswith("Instruction: Be brief\n\nFirst")


def test_prepare_follows_the_progression_it_is_given() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    one, two, three = says("One"), says("Two"), says("Three")
    wanted = [three.id, one.id]

    assert prepare_messages_for_chat([one, two, three], wanted) == [three.content, one.content]
    assert prepare_messages_for_chat(Pile([one, two, three]), Progression(wanted)) == [
        three.content,
        one.content,
    ]
    with pytest.raises(NotFoundError):
        prepare_messages_for_chat([one], [uuid4()])


def test_prepare_asks_a_datetime_factory_anew_each_time() -> None:
    """SPEC §1 · prepare_messages_for_chat"""
    times = iter(["early", "late"])
    session = Session()
    clock = Message(content=SystemContent(datetime_factory=lambda: next(times)))
    branch = session.create_branch(name="main", system=clock)
    session.add_message(says("Now?"), branches=branch)

    first = prepare_messages_for_chat(session.messages, branch)
    second = prepare_messages_for_chat(session.messages, branch)

    assert first == [InstructionContent(instruction="System Time: early\n\nNow?")]
    assert second == [InstructionContent(instruction="System Time: late\n\nNow?")]


def test_the_same_message_can_stand_on_several_branches_without_being_stored_twice() -> None:
    """000 · Design Philosophy · Why Session → Branch → Message?"""
    session = Session()
    one, other = session.create_branch(name="one"), session.create_branch(name="other")
    message = says("Shared")
    session.add_message(message, branches=one)
    session.add_message(message, branches=[one, other])

    assert len(session.messages) == 1
    assert list(one) == list(other) == [message.id]


def test_branches_own_their_order_and_the_session_owns_the_messages() -> None:
    """000 · Design Philosophy · Why Session → Branch → Message?"""
    session = Session()
    first, second = says("First"), says("Second")
    one, other = session.create_branch(name="one"), session.create_branch(name="other")
    for message in (first, second):
        session.add_message(message, branches=one)
    for message in (second, first):
        session.add_message(message, branches=other)

    one.remove(first.id)

    assert [session.messages[uid].rendered for uid in one] == ["Instruction: Second"]
    assert [session.messages[uid].rendered for uid in other] == [
        "Instruction: Second",
        "Instruction: First",
    ]
    assert first.id in session.messages


def test_a_branch_of_another_session_is_refused() -> None:
    """000 · Design Philosophy · Why Session → Branch → Message?"""
    session, stranger = Session(), Session().create_branch(name="main")

    with pytest.raises(NotFoundError):
        session.add_message(says("Hello"), branches=stranger)
    assert len(session.messages) == 0


def test_each_kind_of_content_has_its_own_fields_and_its_own_rendering() -> None:
    """000 · Design Philosophy · Why Discriminated Union for MessageContent?"""
    assert Message(content={"system_message": "Be brief"}).rendered == "Be brief"
    assert Message(content={"instruction": "Hello"}).rendered == "Instruction: Hello"
    assert Message(content={"assistant_response": "Hi"}).rendered == "Hi"
    assert Message(content={"function": "now"}).rendered == "function: now\narguments: {}"
    assert Message(content={"error": "No"}).rendered == "success: false\nerror: No"


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (SystemContent, {"system_message": 5}),
        (SystemContent, {"system_datetime": 5}),
        (SystemContent, {"datetime_factory": "noon"}),
        (InstructionContent, {"instruction": 5}),
        (InstructionContent, {"context": "not a list"}),
        (InstructionContent, {"tool_schemas": [5]}),
        (InstructionContent, {"response_model": int}),
        (InstructionContent, {"images": "https://example.com/image.jpg"}),
        (AssistantResponseContent, {"assistant_response": ["Hi"]}),
        (ActionRequestContent, {"function": 5}),
        (ActionRequestContent, {"arguments": ["not a dict"]}),
        (ActionResponseContent, {"request_id": 5}),
        (ActionResponseContent, {"error": 5}),
    ],
)
def test_each_field_is_checked_by_its_kind_of_content(
    content: type[MessageContent], fields: dict[str, Any]
) -> None:
    """000 · Design Philosophy · Why Discriminated Union for MessageContent?"""
    with pytest.raises(TypeError, match=next(iter(fields))):
        content(**fields)


def test_roles_are_derived_from_the_content() -> None:
    """000 · Design Philosophy · Why Auto-Derived Roles?"""
    assert Message(content=SystemContent()).role is MessageRole.SYSTEM
    assert Message(content=InstructionContent()).role is MessageRole.USER
    assert Message(content=AssistantResponseContent()).role is MessageRole.ASSISTANT
    assert Message(content=ActionRequestContent()).role is MessageRole.ASSISTANT
    assert Message(content=ActionResponseContent()).role is MessageRole.TOOL


def test_branches_of_one_session_have_different_resources_and_capabilities() -> None:
    """000 · Design Philosophy · Why Branch-Level Access Control?"""
    session = Session()

    prod_branch = session.create_branch(
        name="production",
        resources={"gpt4"},
        capabilities={"ApprovedSchema"},
    )

    exp_branch = session.create_branch(
        name="experimental",
        resources={"gpt4", "claude", "experimental_tool"},
        capabilities={"ApprovedSchema", "ExperimentalSchema"},
    )

    assert prod_branch.resources == {"gpt4"}
    assert prod_branch.capabilities == {"ApprovedSchema"}
    assert exp_branch.resources == {"gpt4", "claude", "experimental_tool"}
    assert exp_branch.capabilities == {"ApprovedSchema", "ExperimentalSchema"}


def test_conduct_keeps_experimental_resources_out_of_production() -> None:
    """000 · Design Philosophy · Why Branch-Level Access Control?"""
    gpt4, claude = ScriptedModel(['{"ok": true}'] * 2, "gpt4"), ScriptedModel(["Hi"], "claude")
    session = Session()
    session.services.register(gpt4)
    session.services.register(claude)
    session.services.register(look_up, name="experimental_tool")

    prod_branch = session.create_branch(
        name="production",
        resources={"gpt4"},
        capabilities={"ApprovedSchema"},
    )

    exp_branch = session.create_branch(
        name="experimental",
        resources={"gpt4", "claude", "experimental_tool"},
        capabilities={"ApprovedSchema", "ExperimentalSchema"},
    )

    async def told(branch: Branch, imodel: str, **given: Any) -> Any:
        operation = await session.conduct(
            branch=branch, operation="communicate", instruction="Hi", imodel=imodel, **given
        )
        return await operation.invoke()

    assert asyncio.run(told(prod_branch, "gpt4", response_model=ApprovedSchema)).ok
    assert asyncio.run(told(exp_branch, "gpt4", response_model=ExperimentalSchema)).ok
    assert asyncio.run(told(exp_branch, "claude")) == "Hi"
    with pytest.raises(PermissionError, match=r"may not use 'claude'; its resources are 'gpt4'"):
        asyncio.run(told(prod_branch, "claude"))
    with pytest.raises(PermissionError, match="'ExperimentalSchema'"):
        asyncio.run(told(prod_branch, "gpt4", response_model=ExperimentalSchema))
    assert len(prod_branch) == 2


def test_a_branch_is_granted_nothing_unless_told() -> None:
    """000 · Design Philosophy · Why Branch-Level Access Control?"""
    branch = Session().create_branch(name="main")

    assert branch.resources == set()
    assert branch.capabilities == set()


def test_pitfall_1_a_content_is_frozen_and_a_new_message_takes_the_change() -> None:
    """000 · Common Pitfalls · Pitfall 1: Mutating Messages After Adding to Session"""
    session = Session()
    branch1, branch2 = session.create_branch(name="one"), session.create_branch(name="two")

    msg = Message(content=InstructionContent(instruction="Original"))
    session.add_message(msg, branches=[branch1, branch2])

    with pytest.raises(dataclasses.FrozenInstanceError):
        msg.content.instruction = "Modified"  # pyright: ignore[reportAttributeAccessIssue]

    new_msg = Message(content=InstructionContent(instruction="Modified"))
    session.add_message(new_msg, branches=branch2)

    assert list(branch1) == [msg.id]
    assert list(branch2) == [msg.id, new_msg.id]
    assert msg.rendered == "Instruction: Original"
    assert not hasattr(msg.content, "__dict__")


def test_pitfall_2_a_message_added_without_branches_is_stored_on_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """000 · Common Pitfalls · Pitfall 2: Adding Messages Without Branches"""
    session = Session()
    branch = session.create_branch(name="main")

    msg = Message(content=InstructionContent(instruction="Test"))
    session.add_message(msg)

    print(msg.id in session.messages)
    print(msg.id in branch)

    assert capsys.readouterr().out == "True\nFalse\n"
    session.add_message(msg, branches=branch)
    assert list(branch) == [msg.id]


def test_pitfall_3_a_role_cannot_be_assigned_by_hand() -> None:
    """000 · Common Pitfalls · Pitfall 3: Manual Role Assignment"""
    with pytest.raises(TypeError, match="'role' is not a field"):
        Message(
            content=InstructionContent(instruction="Hello"),
            role=MessageRole.ASSISTANT,  # pyright: ignore
        )

    msg = Message(content=InstructionContent(instruction="Hello"))

    assert msg.role is MessageRole.USER
    assert msg.role is msg.content.role
    with pytest.raises(AttributeError):
        msg.role = MessageRole.ASSISTANT  # pyright: ignore[reportAttributeAccessIssue]


def test_pitfall_3_printing_a_role_shows_the_member(capsys: pytest.CaptureFixture[str]) -> None:
    """000 · Common Pitfalls · Pitfall 3: Manual Role Assignment"""
    msg = Message(content=InstructionContent(instruction="Hello"))
    print(msg.role)

    assert capsys.readouterr().out == "MessageRole.USER\n"


def test_pitfall_4_request_bypasses_access_control_and_conduct_does_not() -> None:
    """000 · Common Pitfalls · Pitfall 4: Forgetting to Validate Access Control"""
    model = ScriptedModel(["No validation"], "restricted_service")
    session = Session()
    session.services.register(model)
    branch = session.create_branch(name="main", resources={"gpt4"})
    ipu = IPU()

    async def example() -> None:
        response = await session.request("restricted_service", messages="Hello")
        assert response.text == "No validation"

        with pytest.raises(PermissionError, match="'restricted_service'"):
            await session.conduct(
                branch=branch,
                operation="generate",
                ipu=ipu,
                imodel="restricted_service",
            )

    asyncio.run(example())
    model.assert_complete()


def test_pitfall_4_request_with_a_branch_is_checked_too() -> None:
    """000 · Common Pitfalls · Pitfall 4: Forgetting to Validate Access Control"""
    model = ScriptedModel([], "restricted_service")
    session = Session()
    session.services.register(model)
    branch = session.create_branch(name="main", resources={"gpt4"})

    with pytest.raises(AccessError, match="'restricted_service'"):
        asyncio.run(session.request("restricted_service", branch=branch, messages="Hello"))
    assert model.requests == []


def test_example_1_basic_conversation(capsys: pytest.CaptureFixture[str]) -> None:
    """000 · Examples · Example 1: Basic Conversation

    SPEC §1 · Ruling 1: the question prints with `Instruction: ` before it.
    """
    from sennit import AssistantResponseContent, InstructionContent, Message, Session

    session = Session()
    branch = session.create_branch(name="chat")

    user_msg = Message(
        content=InstructionContent(instruction="What is the capital of France?"),
        sender="user",
    )
    session.add_message(user_msg, branches=branch)

    assistant_msg = Message(
        content=AssistantResponseContent(assistant_response="The capital of France is Paris."),
        sender="assistant",
    )
    session.add_message(assistant_msg, branches=branch)

    messages = [session.messages[uid] for uid in branch]
    for msg in messages:
        print(f"{msg.role.value}: {msg.rendered}")

    assert capsys.readouterr().out == (
        "user: Instruction: What is the capital of France?\n"
        "assistant: The capital of France is Paris.\n"
    )
    assert user_msg.sender == MessageRole.USER
    assert assistant_msg.sender == MessageRole.ASSISTANT


def test_example_2_forking_for_ab_testing(capsys: pytest.CaptureFixture[str]) -> None:
    """000 · Examples · Example 2: Forking for A/B Testing"""
    from sennit import InstructionContent, Message, Session

    session = Session()
    main = session.create_branch(name="main")

    msg1 = Message(content=InstructionContent(instruction="Hello"))
    msg2 = Message(content=InstructionContent(instruction="Tell me about Python"))
    session.add_message(msg1, branches=main)
    session.add_message(msg2, branches=main)

    variant_a = session.fork(main, name="variant_a", system=True, resources=True)
    variant_b = session.fork(main, name="variant_b", system=True, resources=True)

    a_msg = Message(content=InstructionContent(instruction="Focus on simplicity"))
    b_msg = Message(content=InstructionContent(instruction="Focus on performance"))

    session.add_message(a_msg, branches=variant_a)
    session.add_message(b_msg, branches=variant_b)

    print(f"Variant A: {len(variant_a)} messages")
    print(f"Variant B: {len(variant_b)} messages")

    assert capsys.readouterr().out == "Variant A: 3 messages\nVariant B: 3 messages\n"
    assert list(variant_a) == [msg1.id, msg2.id, a_msg.id]
    assert list(variant_b) == [msg1.id, msg2.id, b_msg.id]
    assert list(main) == [msg1.id, msg2.id]


def test_example_3_structured_output_workflow(capsys: pytest.CaptureFixture[str]) -> None:
    """000 · Examples · Example 3: Structured Output Workflow"""
    from pydantic import BaseModel

    from sennit import InstructionContent, Message, Session

    class DataAnalysis(BaseModel):
        summary: str
        key_findings: list[str]
        confidence: float

    session = Session()
    branch = session.create_branch(
        name="analysis",
        capabilities={"DataAnalysis"},
    )

    instruction = Message(
        content=InstructionContent(
            instruction="Analyze the sales data from Q3",
            context=[
                "Total sales: $1.5M",
                "Growth: +15% YoY",
                "Top product: Widget Pro",
            ],
            response_model=DataAnalysis,
        )
    )
    session.add_message(instruction, branches=branch)

    print(instruction.rendered)

    assert capsys.readouterr().out == dedent("""\
        Instruction: Analyze the sales data from Q3

        Context:
          - Total sales: $1.5M
          - Growth: +15% YoY
          - Top product: Widget Pro

        Output Types:
          interface DataAnalysis {
            summary: string;
            key_findings: string[];
            confidence: number;
          }

        ResponseFormat:
          **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
          Example structure:
          ```json
          {"summary": "...", "key_findings": ["..."], "confidence": 0}
          ```

          Return ONLY valid JSON without markdown code blocks.
        """)

    llm_response = '{"summary": "Good", "key_findings": ["Growth"], "confidence": 0.9}'
    analysis = DataAnalysis.model_validate_json(llm_response)
    assert analysis.key_findings == ["Growth"]


def test_example_4_tool_calling_workflow() -> None:
    """000 · Examples · Example 4: Tool Calling Workflow"""
    from pydantic import BaseModel

    from sennit import (
        ActionRequestContent,
        ActionResponseContent,
        InstructionContent,
        Message,
        Session,
    )

    session = Session()
    branch = session.create_branch(name="tool_workflow")

    class SearchParams(BaseModel):
        query: str
        max_results: int = 10

    instruction = Message(
        content=InstructionContent(
            instruction="Find recent papers about transformers",
            tool_schemas=[SearchParams],
        )
    )
    session.add_message(instruction, branches=branch)

    tool_request = Message(
        content=ActionRequestContent(
            function="search",
            arguments={"query": "transformers", "max_results": 5},
        )
    )
    session.add_message(tool_request, branches=branch)

    tool_result = Message(
        content=ActionResponseContent(
            result=["Paper 1", "Paper 2", "Paper 3"],
        )
    )
    session.add_message(tool_result, branches=branch)

    followup = Message(content=InstructionContent(instruction="Summarize the top 3 papers"))
    session.add_message(followup, branches=branch)

    assert [session.messages[uid].role.value for uid in branch] == [
        "user",
        "assistant",
        "tool",
        "user",
    ]
    assert instruction.rendered == dedent("""\
        Instruction: Find recent papers about transformers

        Tools:
          SearchParams:
            interface SearchParams {
              query: string;
              max_results?: number;
            }""")
    assert prepare_messages_for_chat(session.messages, branch, to_chat=True) == [
        {"role": "user", "content": "Instruction: Find recent papers about transformers"},
        {
            "role": "assistant",
            "content": ("function: search\narguments:\n  query: transformers\n  max_results: 5"),
        },
        {
            "role": "user",
            "content": (
                "Instruction: Summarize the top 3 papers\n\n"
                "Context:\n"
                "  - success: true\n"
                "    result:\n"
                "      - Paper 1\n"
                "      - Paper 2\n"
                "      - Paper 3"
            ),
        },
    ]


def test_example_5_multi_service_coordination(capsys: pytest.CaptureFixture[str]) -> None:
    """000 · Examples · Example 5: Multi-Service Coordination"""
    gpt4_model = ScriptedModel(["From GPT-4"])
    claude_model = ScriptedModel(["From Claude"])
    search_tool = Tool(look_up)
    messages = [says("Hello")]

    async def example() -> None:
        from sennit import Session

        session = Session()
        session.services.register(gpt4_model, name="gpt4")
        session.services.register(claude_model, name="claude")
        session.services.register(search_tool, name="search")

        gpt_branch = session.create_branch(
            name="gpt4_branch",
            resources={"gpt4"},
        )

        claude_branch = session.create_branch(
            name="claude_branch",
            resources={"claude", "search"},
        )

        from sennit import IPU

        ipu = IPU()

        op1 = await session.conduct(
            branch=gpt_branch,
            operation="generate",
            ipu=ipu,
            imodel="gpt4",
            messages=messages,
        )

        try:
            await session.conduct(
                branch=gpt_branch,
                operation="generate",
                ipu=ipu,
                imodel="claude",
                messages=messages,
            )
        except PermissionError as e:
            print(f"Access denied: {e}")

        assert (await op1.invoke()).text == "From GPT-4"
        assert claude_model.requests == []
        op3 = await session.conduct(
            branch=claude_branch,
            operation="generate",
            ipu=ipu,
            imodel="claude",
            tools=["search"],
            messages=messages,
        )
        assert (await op3.invoke()).text == "From Claude"

    asyncio.run(example())
    assert capsys.readouterr().out == (
        "Access denied: Branch 'gpt4_branch' may not use 'claude'; its resources are 'gpt4'. "
        "Grant it with branch.grant(resources={'claude'}).\n"
    )
    assert [tool.name for tool in claude_model.requests[0].tools] == ["search"]


def test_message_takes_content_sender_recipient_id_created_at_and_metadata() -> None:
    """SPEC §1 · Ruling 8"""
    named = parameters(Message)
    named.pop("unknown", None)  # catches role= and other wrong names to say what is wrong

    assert named == {
        "content": inspect.Parameter.empty,
        "sender": None,
        "recipient": None,
        "id": None,
        "created_at": None,
        "metadata": None,
    }


def test_message_keeps_the_id_time_and_metadata_it_is_given() -> None:
    """SPEC §1 · Ruling 8"""
    uid, moment = uuid4(), datetime(2025, 11, 24, 10, tzinfo=UTC)
    content = InstructionContent(instruction="Hello")
    message = Message(content, id=uid, created_at=moment, metadata={"n": 1})

    assert message.id == uid
    assert message.created_at == moment
    assert message.metadata == {"n": 1}


@pytest.mark.parametrize("name", ["content", "role", "rendered", "chat_msg"])
def test_a_message_is_read_only(name: str) -> None:
    """SPEC §1 · Ruling 8"""
    message = says("Hello")

    with pytest.raises(AttributeError):
        setattr(message, name, getattr(message, name))


def test_a_message_refuses_a_field_it_does_not_have() -> None:
    """SPEC §1 · Ruling 8"""
    with pytest.raises(TypeError, match="'colour'"):
        Message(content=InstructionContent(), colour="red")  # pyright: ignore


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({}, InstructionContent()),
        ({"system_message": "Be brief"}, SystemContent(system_message="Be brief")),
        (
            {"instruction": "Look", "images": ["https://example.com/image.jpg"]},
            InstructionContent(instruction="Look", images=["https://example.com/image.jpg"]),
        ),
        ({"assistant_response": "Hi"}, AssistantResponseContent(assistant_response="Hi")),
        ({"arguments": {"n": 1}}, ActionRequestContent(arguments={"n": 1})),
        ({"result": None}, ActionResponseContent(result=None)),
    ],
)
def test_a_dict_becomes_the_one_content_its_keys_belong_to(
    fields: dict[str, Any], content: MessageContent
) -> None:
    """SPEC §1 · Ruling 8"""
    assert Message(content=fields).content == content


@pytest.mark.parametrize(
    "content",
    [
        {"function": "search", "instruction": "Look"},
        {"system_message": "Be brief", "assistant_response": "Hi"},
        {"instruction": "Look", "colour": "red"},
        {"text": "Hello"},
        "Hello",
        None,
        ["Hello"],
    ],
)
def test_what_belongs_to_no_single_content_is_an_error_not_a_guess(content: Any) -> None:
    """SPEC §1 · Ruling 8"""
    with pytest.raises(TypeError):
        Message(content=content)


def test_a_message_needs_one_of_the_five_contents_not_their_base() -> None:
    """SPEC §1 · Ruling 8"""
    with pytest.raises(TypeError):
        Message(content=MessageContent())


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (MessageRole.TOOL, MessageRole.TOOL),
        ("assistant", MessageRole.ASSISTANT),
        ("alice", "alice"),
        (UUID(int=7), UUID(int=7)),
        ("00000000-0000-0000-0000-000000000007", UUID(int=7)),
        (None, None),
    ],
)
def test_role_names_and_uuid_strings_are_normalised_in_sender_and_recipient(
    given: SenderRecipient | None, kept: SenderRecipient | None
) -> None:
    """SPEC §1 · Ruling 8"""
    message = Message(InstructionContent(), sender=given, recipient=given)

    assert (message.sender, message.recipient) == (kept, kept)
    assert type(message.sender) is type(message.recipient) is type(kept)


def test_a_clone_has_a_new_id_and_records_what_it_was_cloned_from() -> None:
    """SPEC §1 · Ruling 8"""
    message = Message(
        InstructionContent(instruction="Hello"), sender="alice", recipient="bob", metadata={"n": 1}
    )

    clone, sent = message.clone(), message.clone(sender="carol")

    assert clone.id != message.id
    assert clone.content == message.content
    assert (clone.sender, clone.recipient) == ("alice", "bob")
    assert clone.metadata == {
        "n": 1,
        "clone_from": str(message.id),
        "original_created_at": message.to_dict()["created_at"],
    }
    assert sent.sender == "carol"
    assert message.metadata == {"n": 1}


def test_equality_and_hash_of_messages_go_by_id() -> None:
    """SPEC §1 · Ruling 8"""
    uid = uuid4()
    one = Message(InstructionContent(instruction="One"), id=uid)
    same = Message(AssistantResponseContent(assistant_response="Two"), id=uid)
    other = Message(InstructionContent(instruction="One"))

    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert len({one, same, other}) == 2


CONTENTS = [
    SystemContent(system_message="Be brief", system_datetime="2025-11-24T10:00:00Z"),
    SystemContent(system_datetime=True),
    InstructionContent(),
    InstructionContent(
        instruction="Look\nclosely",
        context=["text", {"nested": [1, 2.5, None, True]}, []],
        tool_schemas=[{"name": "now", "parameters": {"type": "object", "properties": {}}}],
        images=["https://example.com/image.jpg"],
        image_detail="high",
    ),
    AssistantResponseContent(assistant_response="Hi", reasoning="They greeted me."),
    ActionRequestContent(function="search", arguments={"query": "x"}, call_id="call_1"),
    ActionResponseContent(request_id="call_1", result=None),
    ActionResponseContent(request_id="call_1", result={"papers": ["One", {"year": 2017}]}),
    ActionResponseContent(error="Timeout"),
]


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: type(content).__name__)
def test_every_message_survives_dict_and_json_exactly(content: MessageContent) -> None:
    """SPEC §1 · Ruling 9"""
    message = Message(
        content,
        sender="user",
        recipient=uuid4(),
        created_at=datetime(2025, 11, 24, 10, 0, 0, 123456, tzinfo=UTC),
        metadata={"tags": ["a", "b"]},
    )

    for back in (Message.from_dict(message.to_dict()), Message.from_json(message.to_json())):
        assert back.id == message.id
        assert back.content == content
        assert type(back.content) is type(content)
        assert back.created_at == message.created_at
        assert (back.sender, back.recipient) == (message.sender, message.recipient)
        assert back.metadata == message.metadata
        assert back.to_json() == message.to_json()


def test_a_response_model_is_stored_as_its_name_and_json_schema() -> None:
    """SPEC §1 · Ruling 9"""
    message = says("Look", tool_schemas=[Search], response_model=Verdict)

    stored = message.to_dict()["content"]
    back = Message.from_json(message.to_json())

    assert stored["response_model"] == {"model": "Verdict", "schema": Verdict.model_json_schema()}
    assert stored["tool_schemas"] == [{"model": "Search", "schema": Search.model_json_schema()}]
    assert back.rendered == message.rendered
    assert back.to_dict() == message.to_dict()


def test_a_caller_can_pass_its_models_to_get_the_classes_back() -> None:
    """SPEC §1 · Ruling 9"""
    message = says("Look", tool_schemas=[Search], response_model=Verdict)
    models = {"Verdict": Verdict, "Search": Search}

    assert Message.from_dict(message.to_dict(), models=models).content == message.content
    assert Message.from_json(message.to_json(), models=models).content == message.content


def test_loading_a_message_never_imports_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SPEC §1 · Ruling 9"""
    (tmp_path / "booby_trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    stored = says("Look", response_model=Verdict).to_dict()
    stored["content"]["response_model"]["model"] = "booby_trap.Verdict"

    back = Message.from_dict(stored)

    assert "booby_trap" not in sys.modules
    assert back.to_dict() == stored


def test_what_a_datetime_factory_gives_is_stored_as_the_system_datetime() -> None:
    """SPEC §1 · Ruling 9"""
    message = Message(SystemContent(system_message="Be brief", datetime_factory=lambda: "noon"))

    assert message.to_dict()["content"] == {"system_message": "Be brief", "system_datetime": "noon"}
    assert Message.from_json(message.to_json()).rendered == "System Time: noon\n\nBe brief"


def test_every_section_listed_has_a_test_and_every_test_names_a_section() -> None:
    """The list at the top is kept honest."""
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    docstrings = {test.__name__: inspect.getdoc(test) or "" for test in tests}
    del docstrings["test_every_section_listed_has_a_test_and_every_test_names_a_section"]

    for section in SECTIONS:
        assert any(section in docstring for docstring in docstrings.values()), section
    for name, docstring in docstrings.items():
        assert docstring.split("\n")[0] in SECTIONS, name
