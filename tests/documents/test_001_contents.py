"""Document 001 (the kinds of message content), example by example, in its order.

Each docstring opens with the heading under which the document shows the example; the code is the
document's, with only the import line changed, and what it shows stands beside it. Where SPEC §1
rules otherwise, its form is asserted and the ruling is named. The model call that Common Patterns ·
Structured Output Workflow has commented out is made, with a scripted model.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from textwrap import dedent
from typing import Any, ClassVar, Literal, cast

import pytest
from pydantic import BaseModel, Field

from sennit import (
    ActionRequestContent,
    ActionResponseContent,
    AssistantResponseContent,
    InstructionContent,
    Message,
    MessageContent,
    MessageRole,
    SystemContent,
    Unset,
    clock,
    iModel,
    prepare_messages_for_chat,
)
from sennit.messages import MaybeUnset
from sennit.testing import ScriptedModel

SECTIONS = (
    "001 · Overview",
    "001 · MessageContent · Class Signature",
    "001 · MessageContent · Properties · rendered",
    "001 · MessageContent · Properties · chat_msg",
    "001 · MessageContent · Methods · from_dict()",
    "001 · MessageContent · Methods · with_updates()",
    "001 · SystemContent · Class Signature",
    "001 · SystemContent · Fields",
    "001 · SystemContent · Properties · rendered",
    "001 · SystemContent · Validation",
    "001 · SystemContent · Usage Patterns",
    "001 · InstructionContent · Class Signature",
    "001 · InstructionContent · Fields",
    "001 · InstructionContent · Properties · rendered",
    "001 · InstructionContent · Validation",
    "001 · InstructionContent · Usage Patterns",
    "001 · AssistantResponseContent · Class Signature",
    "001 · AssistantResponseContent · Properties · rendered",
    "001 · AssistantResponseContent · Usage Patterns",
    "001 · ActionRequestContent · Class Signature",
    "001 · ActionRequestContent · Properties · rendered",
    "001 · ActionRequestContent · Usage Patterns",
    "001 · ActionResponseContent · Class Signature",
    "001 · ActionResponseContent · Properties · success",
    "001 · ActionResponseContent · Properties · rendered",
    "001 · ActionResponseContent · Usage Patterns",
    "001 · Common Patterns · Structured Output Workflow",
    "001 · Common Patterns · Tool Calling Workflow",
    "001 · Common Patterns · Multimodal Interaction",
    "001 · Common Patterns · Updating Historical Messages",
    "001 · Design Rationale · Why Discriminated Union?",
    "001 · Design Rationale · Why Immutable Dataclasses?",
    "001 · Design Rationale · Why MaybeUnset Fields?",
    "001 · Design Rationale · Why TypeScript Schemas in Rendering?",
    "001 · Design Rationale · Why Separate request_id in ActionResponseContent?",
    "SPEC §1 · Contents",
    "SPEC §1 · Ruling 1",
    "SPEC §1 · Ruling 2",
    "SPEC §1 · Ruling 3",
    "SPEC §1 · Ruling 4",
    "SPEC §1 · Ruling 5",
    "SPEC §1 · Ruling 7",
)

FIVE = (
    SystemContent,
    InstructionContent,
    AssistantResponseContent,
    ActionRequestContent,
    ActionResponseContent,
)


class SearchParams(BaseModel):
    """Search for information."""

    query: str
    max_results: int = 10


class Verdict(BaseModel):
    ok: bool


def parameters(function: Any) -> dict[str, Any]:
    """Names and defaults, in order, without `self`."""
    found = inspect.signature(function).parameters
    return {name: given.default for name, given in found.items() if name != "self"}


def fields_of(content: type[MessageContent]) -> dict[str, Any]:
    """Names and defaults of the dataclass fields, in order."""
    return {field.name: field.default for field in dataclasses.fields(cast("Any", content))}


@pytest.mark.parametrize(
    ("content", "role"),
    [
        (SystemContent.create(system_message="Be brief"), "system"),
        (InstructionContent.create(instruction="Hello"), "user"),
        (AssistantResponseContent.create(assistant_response="Hi"), "assistant"),
        (ActionRequestContent.create(function="search"), "assistant"),
        (ActionResponseContent.create(result="found"), "tool"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_type_of_the_content_decides_the_role_in_a_chat(
    content: MessageContent, role: str
) -> None:
    """001 · Overview"""
    assert isinstance(content, MessageContent)
    assert Message(content=content).role.value == role
    assert content.chat_msg["role"] == role


def test_the_base_class_has_no_role_and_names_the_common_properties_and_methods() -> None:
    """001 · MessageContent · Class Signature"""
    assert MessageContent.role is MessageRole.UNSET
    assert isinstance(inspect.getattr_static(MessageContent, "rendered"), property)
    assert isinstance(inspect.getattr_static(MessageContent, "chat_msg"), property)
    assert isinstance(inspect.getattr_static(MessageContent, "from_dict"), classmethod)
    assert inspect.isfunction(MessageContent.with_updates)


def test_the_base_class_is_the_base_of_dataclasses_in_the_documented_form() -> None:
    """001 · MessageContent · Class Signature"""

    @dataclass(slots=True)
    class NoteContent(MessageContent):
        """A note, declared as the document declares its contents."""

        role: ClassVar[MessageRole] = MessageRole.USER

        note: MaybeUnset[str] = Unset

        @property
        def rendered(self) -> str:
            return f"Note: {self.note or ''}"

    content = NoteContent(note="It rains.")
    message = Message(content=content)
    assert message.role is MessageRole.USER
    assert message.rendered == "Note: It rains."
    assert content.chat_msg == {"role": "user", "content": "Note: It rains."}
    assert content.with_updates(note="It is dry.").rendered == "Note: It is dry."
    assert NoteContent.from_dict({"note": "It rains."}) == content
    with pytest.raises(dataclasses.FrozenInstanceError):
        content.note = "It is dry."
    assert Message.from_json(message.to_json()).content == content


@pytest.mark.parametrize("content", FIVE)
def test_each_kind_is_a_slotted_frozen_dataclass_derived_from_the_base(
    content: type[MessageContent],
) -> None:
    """001 · MessageContent · Class Signature"""
    assert issubclass(content, MessageContent)
    assert dataclasses.is_dataclass(content)
    assert not hasattr(content(), "__dict__")
    assert "role" not in fields_of(content)
    for name in fields_of(content):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(content(), name, Unset)


def test_the_base_class_renders_nothing_itself() -> None:
    """001 · MessageContent · Properties · rendered"""
    with pytest.raises((TypeError, NotImplementedError)):
        _ = MessageContent().rendered


@pytest.mark.parametrize("content", FIVE)
def test_each_kind_renders_in_its_own_way(content: type[MessageContent]) -> None:
    """001 · MessageContent · Properties · rendered"""
    assert "rendered" in vars(content)
    assert isinstance(content().rendered, str)


def test_chat_msg_is_the_role_and_the_rendered_content() -> None:
    """001 · MessageContent · Properties · chat_msg"""
    content = InstructionContent.create(instruction="Explain AI")

    assert content.chat_msg == {"role": "user", "content": "Instruction: Explain AI"}
    assert content.chat_msg == {"role": content.role.value, "content": content.rendered}
    assert Message(content=content).chat_msg == content.chat_msg


def test_chat_msg_of_a_multimodal_content_holds_its_blocks() -> None:
    """001 · MessageContent · Properties · chat_msg"""
    content = InstructionContent.create(
        instruction="Look", images=["https://example.com/image.jpg"]
    )

    assert content.chat_msg == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Instruction: Look"},
            {
                "type": "image_url",
                "image_url": {"url": "https://example.com/image.jpg", "detail": "auto"},
            },
        ],
    }


def test_from_dict_takes_the_data() -> None:
    """001 · MessageContent · Methods · from_dict()"""
    assert next(iter(parameters(MessageContent.from_dict))) == "data"


@pytest.mark.parametrize(
    "content",
    [
        SystemContent(system_message="Be brief", system_datetime="2025-11-24T10:00:00Z"),
        InstructionContent(
            instruction="Look",
            context=["a", {"b": 1}],
            tool_schemas=[{"name": "now"}],
            images=["https://example.com/image.jpg"],
            image_detail="low",
        ),
        AssistantResponseContent(assistant_response="Hi"),
        ActionRequestContent(function="search", arguments={"query": "x"}),
        ActionResponseContent(request_id="req_123", result=[1, None]),
    ],
    ids=lambda content: type(content).__name__,
)
def test_from_dict_builds_each_kind_from_its_fields(content: MessageContent) -> None:
    """001 · MessageContent · Methods · from_dict()"""
    data = {name: value for name in fields_of(type(content)) if (value := getattr(content, name))}

    assert type(content).from_dict(data) == content
    assert MessageContent.from_dict(data) == content


def test_from_dict_takes_model_classes_and_functions_as_the_constructor_does() -> None:
    """001 · MessageContent · Methods · from_dict()"""
    content = InstructionContent.from_dict(
        {"tool_schemas": [SearchParams], "response_model": Verdict}
    )

    assert content.tool_schemas == [SearchParams]
    assert content.response_model is Verdict
    assert SystemContent.from_dict({"datetime_factory": lambda: "noon"}).rendered == (
        "System Time: noon"
    )


@pytest.mark.parametrize("content", FIVE)
def test_from_dict_refuses_a_field_the_kind_does_not_have(content: type[MessageContent]) -> None:
    """001 · MessageContent · Methods · from_dict()"""
    with pytest.raises(TypeError, match="'colour'"):
        content.from_dict({"colour": "red"})


def test_from_dict_checks_the_values() -> None:
    """001 · MessageContent · Methods · from_dict()"""
    with pytest.raises(TypeError):
        InstructionContent.from_dict({"instruction": 5})
    with pytest.raises(ValueError, match="image_detail"):
        InstructionContent.from_dict({"image_detail": "huge"})


def test_with_updates_takes_how_to_copy_containers_and_any_updates() -> None:
    """001 · MessageContent · Methods · with_updates()"""
    found = inspect.signature(MessageContent.with_updates).parameters

    assert list(found) == ["self", "copy_containers", "updates"]
    assert found["copy_containers"].default == "none"
    assert found["copy_containers"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert found["updates"].kind is inspect.Parameter.VAR_KEYWORD


def test_with_updates_gives_a_new_content_and_leaves_the_original() -> None:
    """001 · MessageContent · Methods · with_updates()"""
    from sennit import InstructionContent

    content = InstructionContent(
        instruction="Original",
        context=["item1", "item2"],
    )

    updated = content.with_updates(
        copy_containers="shallow",
        instruction="Modified",
    )
    assert updated.instruction == "Modified"
    assert updated.context == ["item1", "item2"]

    updated = content.with_updates(
        copy_containers="deep",
        context=["item1", "item2", "item3"],
    )
    assert updated.context == ["item1", "item2", "item3"]
    assert content.context == ["item1", "item2"]

    assert content.instruction == "Original"
    assert type(updated) is InstructionContent


NESTED = [
    (InstructionContent(context=[{"list": [1]}]), "context", 0),
    (InstructionContent(tool_schemas=[{"name": "now"}]), "tool_schemas", 0),
    (ActionRequestContent(arguments={"inner": [1]}), "arguments", "inner"),
    (ActionResponseContent(result={"inner": [1]}), "result", "inner"),
]


@pytest.mark.parametrize(("content", "field", "key"), NESTED)
def test_with_updates_none_shares_the_containers(
    content: MessageContent, field: str, key: Any
) -> None:
    """001 · MessageContent · Methods · with_updates()"""
    for updated in (content.with_updates(), content.with_updates("none")):
        assert updated == content
        assert updated is not content
        assert getattr(updated, field) is getattr(content, field)


@pytest.mark.parametrize(("content", "field", "key"), NESTED)
def test_with_updates_shallow_copies_the_container_and_shares_its_elements(
    content: MessageContent, field: str, key: Any
) -> None:
    """001 · MessageContent · Methods · with_updates()"""
    updated = content.with_updates(copy_containers="shallow")

    assert updated == content
    assert getattr(updated, field) is not getattr(content, field)
    assert getattr(updated, field)[key] is getattr(content, field)[key]


@pytest.mark.parametrize(("content", "field", "key"), NESTED)
def test_with_updates_deep_copies_the_container_and_its_elements(
    content: MessageContent, field: str, key: Any
) -> None:
    """001 · MessageContent · Methods · with_updates()"""
    updated = content.with_updates(copy_containers="deep")

    assert updated == content
    assert getattr(updated, field) is not getattr(content, field)
    assert getattr(updated, field)[key] is not getattr(content, field)[key]


def test_with_updates_deep_keeps_model_classes_as_they_are() -> None:
    """001 · MessageContent · Methods · with_updates()"""
    content = InstructionContent(tool_schemas=[SearchParams], response_model=Verdict)
    updated = content.with_updates(copy_containers="deep")

    assert updated.tool_schemas == [SearchParams]
    assert updated.response_model is Verdict


def test_with_updates_renders_what_was_updated() -> None:
    """001 · MessageContent · Methods · with_updates()"""
    content = InstructionContent(instruction="Original", context=["item1"])
    assert content.rendered == "Instruction: Original\n\nContext:\n  - item1"

    updated = content.with_updates(instruction="Modified")

    assert updated.rendered == "Instruction: Modified\n\nContext:\n  - item1"
    assert content.rendered == "Instruction: Original\n\nContext:\n  - item1"


def test_system_content_has_the_documented_role_fields_and_create() -> None:
    """001 · SystemContent · Class Signature"""
    assert SystemContent.role is MessageRole.SYSTEM
    assert list(fields_of(SystemContent).items()) == [
        ("system_message", Unset),
        ("system_datetime", Unset),
        ("datetime_factory", Unset),
    ]
    assert list(parameters(SystemContent.create).items()) == [
        ("system_message", None),
        ("system_datetime", None),
        ("datetime_factory", None),
    ]
    assert type(SystemContent.create()) is SystemContent


def test_system_datetime_true_is_the_current_utc_time() -> None:
    """001 · SystemContent · Fields"""
    before = datetime.now(UTC)
    rendered = SystemContent(system_datetime=True).rendered
    after = datetime.now(UTC)

    shown = datetime.fromisoformat(rendered.removeprefix("System Time: "))
    assert before <= shown <= after


def test_a_datetime_factory_is_called_during_rendering() -> None:
    """001 · SystemContent · Fields"""
    calls = iter(["first", "second"])
    content = SystemContent.create(datetime_factory=lambda: next(calls))

    assert content.rendered == "System Time: first"
    assert content.rendered == "System Time: second"


def test_a_system_message_renders_below_its_time() -> None:
    """001 · SystemContent · Properties · rendered"""
    from sennit import SystemContent

    content = SystemContent.create(system_message="You are helpful")
    assert content.rendered == "You are helpful"

    content = SystemContent.create(
        system_message="You are helpful",
        system_datetime=True,
    )
    at_ten = int(datetime(2025, 11, 24, 10, tzinfo=UTC).timestamp()) * 10**9
    with clock.wall_clock_from(lambda: at_ten):
        assert content.rendered == "System Time: 2025-11-24T10:00:00+00:00\n\nYou are helpful"

    content = SystemContent.create(
        system_message="You are helpful",
        system_datetime="2025-11-24T10:00:00Z",
    )
    assert content.rendered == "System Time: 2025-11-24T10:00:00Z\n\nYou are helpful"

    content = SystemContent.create(
        system_message="You are helpful",
        datetime_factory=lambda: "Custom time format",
    )
    assert content.rendered == "System Time: Custom time format\n\nYou are helpful"


def test_a_system_content_without_message_or_time_renders_what_it_has() -> None:
    """001 · SystemContent · Properties · rendered"""
    assert SystemContent.create().rendered == ""
    assert SystemContent.create(system_datetime="noon").rendered == "System Time: noon"


@pytest.mark.parametrize(
    "make",
    [
        SystemContent,
        SystemContent.create,
        lambda **fields: SystemContent.from_dict(fields),
        lambda **fields: MessageContent.from_dict(fields),
        lambda **fields: Message(content=dict(fields)),
        lambda **fields: SystemContent().with_updates(**fields),
        lambda system_datetime, datetime_factory: SystemContent(
            system_datetime=system_datetime
        ).with_updates(datetime_factory=datetime_factory),
    ],
)
def test_both_datetime_fields_cannot_be_set(make: Callable[..., Any]) -> None:
    """001 · SystemContent · Validation

    SPEC §1 · Ruling 4: there is no way around the check.
    """
    for given in (True, "2025-11-24T10:00:00Z"):
        with pytest.raises(ValueError, match=r"both system_datetime and datetime_factory"):
            make(system_datetime=given, datetime_factory=lambda: "noon")


def test_one_datetime_field_can_take_the_place_of_the_other() -> None:
    """001 · SystemContent · Validation"""
    content = SystemContent(system_datetime=True)
    updated = content.with_updates(system_datetime=None, datetime_factory=lambda: "noon")

    assert updated.rendered == "System Time: noon"


def test_usage_of_system_messages() -> None:
    """001 · SystemContent · Usage Patterns"""
    from sennit import Message, SystemContent

    msg = Message(content=SystemContent.create(system_message="You are a helpful coding assistant"))
    assert msg.role is MessageRole.SYSTEM
    assert msg.chat_msg == {"role": "system", "content": "You are a helpful coding assistant"}

    msg = Message(
        content=SystemContent.create(
            system_message="You are a helpful assistant",
            system_datetime=True,
        )
    )
    assert re.fullmatch(
        r"System Time: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S*\n\nYou are a helpful assistant",
        str(msg.rendered),
    )

    from datetime import datetime

    msg = Message(
        content=SystemContent.create(
            system_message="You are helpful",
            datetime_factory=lambda: datetime.now().strftime("%Y-%m-%d %H:%M"),
        )
    )
    assert re.fullmatch(
        r"System Time: \d{4}-\d\d-\d\d \d\d:\d\d\n\nYou are helpful", str(msg.rendered)
    )


def test_instruction_content_has_the_documented_role_fields_and_create() -> None:
    """001 · InstructionContent · Class Signature"""
    assert InstructionContent.role is MessageRole.USER
    assert list(fields_of(InstructionContent).items()) == [
        ("instruction", Unset),
        ("context", Unset),
        ("tool_schemas", Unset),
        ("response_model", Unset),
        ("images", Unset),
        ("image_detail", Unset),
        ("files", Unset),  # ours
    ]
    assert list(parameters(InstructionContent.create).items()) == [
        ("instruction", None),
        ("context", None),
        ("tool_schemas", None),
        ("response_model", None),
        ("images", None),
        ("image_detail", None),
        ("files", None),
    ]
    assert type(InstructionContent.create()) is InstructionContent


def test_context_may_hold_anything() -> None:
    """001 · InstructionContent · Fields"""
    context = ["text", 1, 2.5, True, None, {"key": "value"}, ["item"]]

    assert InstructionContent(context=context).context == context


def test_tool_schemas_are_models_or_json_schema_dicts() -> None:
    """001 · InstructionContent · Fields"""
    schema = {"name": "now", "parameters": {"type": "object", "properties": {}}}

    assert InstructionContent(tool_schemas=[SearchParams, schema]).tool_schemas == [
        SearchParams,
        schema,
    ]


@pytest.mark.parametrize("detail", ["low", "high", "auto"])
def test_image_detail_is_low_high_or_auto(detail: Literal["low", "high", "auto"]) -> None:
    """001 · InstructionContent · Fields"""
    content = InstructionContent(images=["https://example.com/image.jpg"], image_detail=detail)

    assert content.image_detail == detail
    assert isinstance(content.rendered, list)
    assert content.rendered[-1]["image_url"]["detail"] == detail


def test_image_detail_is_auto_by_default() -> None:
    """001 · InstructionContent · Fields"""
    content = InstructionContent(instruction="Look", images=["https://example.com/image.jpg"])

    assert content.image_detail is Unset
    assert content.rendered == [
        {"type": "text", "text": "Instruction: Look"},
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/image.jpg", "detail": "auto"},
        },
    ]


ALL_SECTIONS = dedent("""\
    Instruction: Find the best paper

    Context:
      - Only peer-reviewed ones
      - field: physics
        years:
          - 2024
          - 2025

    Tools:
      SearchParams:
        # Search for information.
        interface SearchParams {
          query: string;
          max_results?: number;
        }
      now:
        # Tell the time.
        interface now {
          zone: string; // A time zone
        }

    Output Types:
      interface Verdict {
        ok: boolean;
      }

    ResponseFormat:
      **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
      Example structure:
      ```json
      {"ok": false}
      ```

      Return ONLY valid JSON without markdown code blocks.""")


def all_sections(**more: Any) -> InstructionContent:
    return InstructionContent.create(
        instruction="Find the best paper",
        context=["Only peer-reviewed ones", {"field": "physics", "years": [2024, 2025]}],
        tool_schemas=[
            SearchParams,
            {
                "name": "now",
                "description": "Tell the time.",
                "parameters": {
                    "type": "object",
                    "properties": {"zone": {"type": "string", "description": "A time zone"}},
                    "required": ["zone"],
                },
            },
        ],
        response_model=Verdict,
        **more,
    )


def test_an_instruction_with_all_sections_renders_line_by_line() -> None:
    """001 · InstructionContent · Properties · rendered"""
    assert all_sections().rendered == ALL_SECTIONS


def test_images_turn_the_same_text_into_content_blocks() -> None:
    """001 · InstructionContent · Properties · rendered"""
    content = all_sections(
        images=["https://example.com/1.jpg", "http://example.com/2.jpg"], image_detail="low"
    )

    assert content.rendered == [
        {"type": "text", "text": ALL_SECTIONS},
        {"type": "image_url", "image_url": {"url": "https://example.com/1.jpg", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "http://example.com/2.jpg", "detail": "low"}},
    ]


def test_a_basic_instruction_renders_with_its_prefix() -> None:
    """001 · InstructionContent · Properties · rendered"""
    from sennit import InstructionContent

    content = InstructionContent.create(instruction="Explain AI")
    assert content.rendered == "Instruction: Explain AI"


def test_context_renders_as_a_list_after_a_blank_line() -> None:
    """001 · InstructionContent · Properties · rendered"""
    from sennit import InstructionContent

    content = InstructionContent.create(
        instruction="Analyze this",
        context=["Data point 1", "Data point 2"],
    )
    assert content.rendered == (
        "Instruction: Analyze this\n\nContext:\n  - Data point 1\n  - Data point 2"
    )


def test_a_response_model_renders_as_output_types_and_response_format() -> None:
    """001 · InstructionContent · Properties · rendered

    SPEC §1 · Ruling 1: without a newline at the end.
    """
    from pydantic import BaseModel

    from sennit import InstructionContent

    class Analysis(BaseModel):
        summary: str
        score: float

    content = InstructionContent.create(
        instruction="Analyze quarterly results",
        response_model=Analysis,
    )
    assert content.rendered == dedent("""\
        Instruction: Analyze quarterly results

        Output Types:
          interface Analysis {
            summary: string;
            score: number;
          }

        ResponseFormat:
          **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
          Example structure:
          ```json
          {"summary": "...", "score": 0}
          ```

          Return ONLY valid JSON without markdown code blocks.""")


def test_an_image_renders_as_a_block_after_the_text() -> None:
    """001 · InstructionContent · Properties · rendered"""
    from sennit import InstructionContent

    content = InstructionContent.create(
        instruction="Describe this image",
        images=["https://example.com/image.jpg"],
        image_detail="high",
    )
    assert content.rendered == [
        {"type": "text", "text": "Instruction: Describe this image"},
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/image.jpg", "detail": "high"},
        },
    ]


def test_sections_that_are_unset_or_empty_are_left_out() -> None:
    """001 · InstructionContent · Properties · rendered"""
    assert InstructionContent.create().rendered == ""
    assert InstructionContent.create(context=["only"]).rendered == "Context:\n  - only"
    assert InstructionContent(
        instruction="Hi", context=[], tool_schemas=[], images=[]
    ).rendered == ("Instruction: Hi")


def test_a_http_image_is_accepted_and_a_file_is_refused() -> None:
    """001 · InstructionContent · Validation"""
    InstructionContent.create(images=["https://example.com/image.jpg"])
    InstructionContent.create(images=["http://example.com/image.jpg"])

    with pytest.raises(ValueError, match="Image URL") as raised:
        InstructionContent.create(images=["file:///etc/passwd"])
    assert str(raised.value) == "Image URL must use http:// or https:// scheme, got: file://"


@pytest.mark.parametrize(
    ("url", "scheme"),
    [
        ("file:///etc/passwd", "file"),
        ("javascript:alert(1)", "javascript"),
        ("data://text/plain,hello", "data"),
        ("ftp://example.com/image.jpg", "ftp"),
    ],
)
def test_other_schemes_are_refused_by_name(url: str, scheme: str) -> None:
    """001 · InstructionContent · Validation"""
    with pytest.raises(ValueError, match="Image URL") as raised:
        InstructionContent.create(images=["https://example.com/image.jpg", url])
    assert str(raised.value) == f"Image URL must use http:// or https:// scheme, got: {scheme}://"


def test_usage_of_instructions() -> None:
    """001 · InstructionContent · Usage Patterns"""
    from pydantic import BaseModel

    from sennit import InstructionContent, Message

    msg = Message(content=InstructionContent.create(instruction="Explain quantum computing"))
    assert msg.role is MessageRole.USER
    assert msg.rendered == "Instruction: Explain quantum computing"

    msg = Message(
        content=InstructionContent.create(
            instruction="Summarize the discussion",
            context=["Point 1: ...", "Point 2: ...", "Point 3: ..."],
        )
    )
    assert msg.rendered == dedent("""\
        Instruction: Summarize the discussion

        Context:
          - Point 1: ...
          - Point 2: ...
          - Point 3: ...""")

    class Report(BaseModel):
        title: str
        sections: list[str]
        conclusion: str

    msg = Message(
        content=InstructionContent.create(
            instruction="Generate a report on AI safety",
            response_model=Report,
        )
    )
    assert msg.rendered == dedent("""\
        Instruction: Generate a report on AI safety

        Output Types:
          interface Report {
            title: string;
            sections: string[];
            conclusion: string;
          }

        ResponseFormat:
          **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
          Example structure:
          ```json
          {"title": "...", "sections": ["..."], "conclusion": "..."}
          ```

          Return ONLY valid JSON without markdown code blocks.""")

    class SearchParams(BaseModel):
        """Search for information."""

        query: str
        max_results: int = 10

    msg = Message(
        content=InstructionContent.create(
            instruction="Find recent papers on transformers",
            tool_schemas=[SearchParams],
        )
    )
    assert msg.rendered == dedent("""\
        Instruction: Find recent papers on transformers

        Tools:
          SearchParams:
            # Search for information.
            interface SearchParams {
              query: string;
              max_results?: number;
            }""")

    msg = Message(
        content=InstructionContent.create(
            instruction="Describe what you see and identify any issues",
            images=[
                "https://example.com/diagram1.jpg",
                "https://example.com/diagram2.jpg",
            ],
            image_detail="high",
        )
    )
    assert msg.rendered == [
        {"type": "text", "text": "Instruction: Describe what you see and identify any issues"},
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/diagram1.jpg", "detail": "high"},
        },
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/diagram2.jpg", "detail": "high"},
        },
    ]


def test_assistant_response_content_has_the_documented_role_field_and_create() -> None:
    """001 · AssistantResponseContent · Class Signature"""
    assert AssistantResponseContent.role is MessageRole.ASSISTANT
    assert list(fields_of(AssistantResponseContent).items()) == [
        ("assistant_response", Unset),
        ("reasoning", Unset),  # ours
    ]
    assert list(parameters(AssistantResponseContent.create).items()) == [
        ("assistant_response", None),
        ("reasoning", None),
    ]
    assert type(AssistantResponseContent.create()) is AssistantResponseContent


def test_an_assistant_response_renders_as_it_is() -> None:
    """001 · AssistantResponseContent · Properties · rendered"""
    from sennit import AssistantResponseContent

    content = AssistantResponseContent.create(assistant_response="The capital of France is Paris.")
    assert content.rendered == "The capital of France is Paris."

    content = AssistantResponseContent.create()
    assert content.rendered == ""


def test_usage_of_assistant_responses() -> None:
    """001 · AssistantResponseContent · Usage Patterns"""
    from sennit import AssistantResponseContent, Message

    msg = Message(
        content=AssistantResponseContent.create(
            assistant_response="I'd be happy to help with that!"
        )
    )
    assert msg.role is MessageRole.ASSISTANT
    assert msg.chat_msg == {"role": "assistant", "content": "I'd be happy to help with that!"}

    msg = Message(
        content=AssistantResponseContent.create(
            assistant_response=(
                "Python is a high-level programming language.\n\n"
                "Key features include:\n"
                "- Simple syntax\n"
                "- Dynamic typing\n"
                "- Rich ecosystem"
            )
        )
    )
    assert msg.rendered == (
        "Python is a high-level programming language.\n\n"
        "Key features include:\n"
        "- Simple syntax\n"
        "- Dynamic typing\n"
        "- Rich ecosystem"
    )


def test_action_request_content_has_the_documented_role_fields_and_create() -> None:
    """001 · ActionRequestContent · Class Signature"""
    assert ActionRequestContent.role is MessageRole.ASSISTANT
    assert list(fields_of(ActionRequestContent).items()) == [
        ("function", Unset),
        ("arguments", Unset),
        ("call_id", Unset),  # ours
    ]
    assert list(parameters(ActionRequestContent.create).items()) == [
        ("function", None),
        ("arguments", None),
        ("call_id", None),
    ]
    assert type(ActionRequestContent.create()) is ActionRequestContent


def test_an_action_request_renders_as_yaml() -> None:
    """001 · ActionRequestContent · Properties · rendered"""
    from sennit import ActionRequestContent

    content = ActionRequestContent.create(
        function="search",
        arguments={"query": "quantum computing", "max_results": 5},
    )
    assert content.rendered == (
        "function: search\narguments:\n  query: quantum computing\n  max_results: 5"
    )

    content = ActionRequestContent.create(function="get_time")
    assert content.rendered == "function: get_time\narguments: {}"


def test_empty_arguments_render_like_unset_ones() -> None:
    """001 · ActionRequestContent · Properties · rendered"""
    content = ActionRequestContent.create(function="get_time", arguments={})

    assert content.rendered == "function: get_time\narguments: {}"


def test_nested_arguments_render_as_nested_yaml() -> None:
    """001 · ActionRequestContent · Properties · rendered"""
    content = ActionRequestContent.create(
        function="plot",
        arguments={"points": [[1, 2], [3, 4]], "style": {"grid": True, "title": None}, "tags": []},
    )

    assert content.rendered == dedent("""\
        function: plot
        arguments:
          points:
            - - 1
              - 2
            - - 3
              - 4
          style:
            grid: true
            title: null
          tags: []""")


def test_usage_of_action_requests() -> None:
    """001 · ActionRequestContent · Usage Patterns"""
    from sennit import ActionRequestContent, Message

    msg = Message(
        content=ActionRequestContent.create(
            function="search_web",
            arguments={
                "query": "latest AI research",
                "max_results": 10,
                "date_range": "last_month",
            },
        )
    )
    assert msg.chat_msg == {
        "role": "assistant",
        "content": (
            "function: search_web\n"
            "arguments:\n"
            "  query: latest AI research\n"
            "  max_results: 10\n"
            "  date_range: last_month"
        ),
    }

    msg = Message(content=ActionRequestContent.create(function="get_current_time"))
    assert msg.rendered == "function: get_current_time\narguments: {}"


def test_action_response_content_has_the_documented_role_fields_and_create() -> None:
    """001 · ActionResponseContent · Class Signature"""
    assert ActionResponseContent.role is MessageRole.TOOL
    assert list(fields_of(ActionResponseContent).items()) == [
        ("request_id", Unset),
        ("result", Unset),
        ("error", Unset),
        ("files", Unset),  # ours
    ]
    assert list(parameters(ActionResponseContent.create).items()) == [
        ("request_id", None),
        ("result", None),
        ("error", None),
        ("files", None),
    ]
    assert isinstance(inspect.getattr_static(ActionResponseContent, "success"), property)
    assert type(ActionResponseContent.create()) is ActionResponseContent


def test_an_action_succeeded_if_it_has_no_error() -> None:
    """001 · ActionResponseContent · Properties · success"""
    from sennit import ActionResponseContent

    content = ActionResponseContent.create(result={"data": 42})
    assert content.success is True

    content = ActionResponseContent.create(error="Connection timeout")
    assert content.success is False


def test_success_depends_on_the_error_alone() -> None:
    """001 · ActionResponseContent · Properties · success"""
    assert ActionResponseContent().success is True
    assert ActionResponseContent(result=None).success is True
    assert ActionResponseContent(error="").success is False
    assert ActionResponseContent(result=1, error="Too late").success is False


def test_an_action_response_renders_as_yaml() -> None:
    """001 · ActionResponseContent · Properties · rendered"""
    from sennit import ActionResponseContent

    content = ActionResponseContent.create(
        request_id="req_123",
        result={"papers": ["Paper 1", "Paper 2"]},
    )
    assert content.rendered == (
        "success: true\nrequest_id: req_123\nresult:\n  papers:\n    - Paper 1\n    - Paper 2"
    )

    content = ActionResponseContent.create(
        request_id="req_123",
        error="API rate limit exceeded",
    )
    assert content.rendered == (
        "success: false\nrequest_id: req_123\nerror: API rate limit exceeded"
    )


@pytest.mark.parametrize(
    ("result", "rendered"),
    [
        (None, "success: true\nresult: null"),
        (42, "success: true\nresult: 42"),
        ("found", "success: true\nresult: found"),
        (False, "success: true\nresult: false"),
        (["a", "b"], "success: true\nresult:\n  - a\n  - b"),
        ([], "success: true\nresult: []"),
        ({}, "success: true\nresult: {}"),
        ([{"title": "A", "year": 1}], "success: true\nresult:\n  - title: A\n    year: 1"),
    ],
)
def test_any_result_renders_without_a_request_id_if_there_is_none(
    result: Any, rendered: str
) -> None:
    """001 · ActionResponseContent · Properties · rendered"""
    assert ActionResponseContent(result=result).rendered == rendered


def test_usage_of_action_responses() -> None:
    """001 · ActionResponseContent · Usage Patterns"""
    from sennit import ActionResponseContent, Message

    msg = Message(
        content=ActionResponseContent.create(
            request_id="search_123",
            result={
                "papers": [
                    {"title": "Attention Is All You Need", "year": 2017},
                    {
                        "title": "BERT: Pre-training of Deep Bidirectional Transformers",
                        "year": 2018,
                    },
                ]
            },
        )
    )
    assert msg.role is MessageRole.TOOL
    assert msg.rendered == dedent("""\
        success: true
        request_id: search_123
        result:
          papers:
            - title: Attention Is All You Need
              year: 2017
            - title: BERT: Pre-training of Deep Bidirectional Transformers
              year: 2018""")

    msg = Message(
        content=ActionResponseContent.create(
            request_id="search_123",
            error="Search API returned 500: Internal Server Error",
        )
    )
    assert msg.chat_msg == {
        "role": "tool",
        "content": (
            "success: false\n"
            "request_id: search_123\n"
            "error: Search API returned 500: Internal Server Error"
        ),
    }


def test_structured_output_workflow() -> None:
    """001 · Common Patterns · Structured Output Workflow"""
    from pydantic import BaseModel

    from sennit import InstructionContent, Message, Session

    class Analysis(BaseModel):
        summary: str
        key_findings: list[str]
        confidence: float

    session = Session()
    branch = session.create_branch(name="analysis")

    instruction = Message(
        content=InstructionContent.create(
            instruction="Analyze quarterly sales data",
            context=["Q3 Sales: $1.5M", "Q3 Expenses: $800K"],
            response_model=Analysis,
        )
    )
    session.add_message(instruction, branches=branch)

    assert list(branch) == [instruction.id]
    assert instruction.chat_msg == {
        "role": "user",
        "content": dedent("""\
            Instruction: Analyze quarterly sales data

            Context:
              - Q3 Sales: $1.5M
              - Q3 Expenses: $800K

            Output Types:
              interface Analysis {
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

              Return ONLY valid JSON without markdown code blocks."""),
    }

    answer = '{"summary": "Good", "key_findings": ["Up"], "confidence": 0.9}'
    llm_api = iModel(ScriptedModel([answer]))
    response = asyncio.run(llm_api.invoke([instruction.chat_msg]))
    analysis = Analysis.model_validate_json(response.text)

    assert analysis == Analysis(summary="Good", key_findings=["Up"], confidence=0.9)


def test_tool_calling_workflow() -> None:
    """001 · Common Patterns · Tool Calling Workflow"""
    from pydantic import BaseModel

    from sennit import (
        ActionRequestContent,
        ActionResponseContent,
        InstructionContent,
        Message,
        Session,
    )

    class SearchParams(BaseModel):
        """Search for information."""

        query: str
        max_results: int = 10

    session = Session()
    branch = session.create_branch(name="tool_workflow")

    instruction = Message(
        content=InstructionContent.create(
            instruction="Find recent papers about transformers",
            tool_schemas=[SearchParams],
        )
    )
    session.add_message(instruction, branches=branch)

    tool_request = Message(
        content=ActionRequestContent.create(
            function="search",
            arguments={"query": "transformers", "max_results": 5},
        )
    )
    session.add_message(tool_request, branches=branch)

    tool_result = Message(
        content=ActionResponseContent.create(
            result=["Paper 1", "Paper 2", "Paper 3"],
        )
    )
    session.add_message(tool_result, branches=branch)

    prepared = prepare_messages_for_chat(
        session.messages, branch, InstructionContent.create(instruction="Sum up"), to_chat=True
    )
    assert prepared == [
        {"role": "user", "content": "Instruction: Find recent papers about transformers"},
        {
            "role": "assistant",
            "content": "function: search\narguments:\n  query: transformers\n  max_results: 5",
        },
        {
            "role": "user",
            "content": (
                "Instruction: Sum up\n\n"
                "Context:\n"
                "  - success: true\n"
                "    result:\n"
                "      - Paper 1\n"
                "      - Paper 2\n"
                "      - Paper 3"
            ),
        },
    ]


def test_multimodal_interaction(capsys: pytest.CaptureFixture[str]) -> None:
    """001 · Common Patterns · Multimodal Interaction"""
    from sennit import InstructionContent, Message, Session

    session = Session()
    branch = session.create_branch(name="vision")

    msg = Message(
        content=InstructionContent.create(
            instruction="Analyze these charts and identify trends",
            context=["Sales data from Q1-Q4 2024"],
            images=[
                "https://example.com/charts/q1.jpg",
                "https://example.com/charts/q2.jpg",
                "https://example.com/charts/q3.jpg",
                "https://example.com/charts/q4.jpg",
            ],
            image_detail="high",
        )
    )
    session.add_message(msg, branches=branch)

    print(msg.rendered)

    blocks = [
        {
            "type": "text",
            "text": (
                "Instruction: Analyze these charts and identify trends\n\n"
                "Context:\n"
                "  - Sales data from Q1-Q4 2024"
            ),
        },
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/charts/q1.jpg", "detail": "high"},
        },
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/charts/q2.jpg", "detail": "high"},
        },
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/charts/q3.jpg", "detail": "high"},
        },
        {
            "type": "image_url",
            "image_url": {"url": "https://example.com/charts/q4.jpg", "detail": "high"},
        },
    ]
    assert capsys.readouterr().out == f"{blocks}\n"
    assert msg.rendered == blocks


def test_updating_historical_messages(capsys: pytest.CaptureFixture[str]) -> None:
    """001 · Common Patterns · Updating Historical Messages"""
    from sennit import InstructionContent

    old_instruction = InstructionContent.create(
        instruction="Search for papers",
        tool_schemas=[SearchParams],
    )

    cleaned = old_instruction.with_updates(
        copy_containers="deep",
        tool_schemas=None,
    )

    print(cleaned.tool_schemas)
    print(old_instruction.tool_schemas)

    assert capsys.readouterr().out == f"Unset\n{[SearchParams]}\n"
    assert cleaned.tool_schemas is Unset
    assert old_instruction.tool_schemas == [SearchParams]
    assert cleaned.rendered == "Instruction: Search for papers"


@pytest.mark.parametrize("content", FIVE)
def test_a_kind_of_content_has_only_its_own_fields(content: type[MessageContent]) -> None:
    """001 · Design Rationale · Why Discriminated Union?"""
    foreign = {name for kind in FIVE if kind is not content for name in fields_of(kind)}
    for name in foreign - fields_of(content).keys():
        with pytest.raises(TypeError, match=name):
            content(**{name: "value"})


def test_no_two_kinds_of_content_share_a_documented_field() -> None:
    """001 · Design Rationale · Why Discriminated Union?"""
    names = [name for kind in FIVE for name in fields_of(kind) if name != "files"]  # ours

    assert len(set(names)) == len(names)


@pytest.mark.parametrize("content", FIVE)
def test_a_content_takes_no_new_attributes_and_gives_none_up(
    content: type[MessageContent],
) -> None:
    """001 · Design Rationale · Why Immutable Dataclasses?"""
    made = content()

    with pytest.raises((AttributeError, TypeError)):
        made.colour = "red"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises((AttributeError, TypeError)):
        made.role = MessageRole.TOOL  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(dataclasses.FrozenInstanceError):
        delattr(made, next(iter(fields_of(content))))


def test_contents_are_equal_when_their_kind_and_fields_are() -> None:
    """001 · Design Rationale · Why Immutable Dataclasses?"""
    assert InstructionContent(context=["a"]) == InstructionContent(context=["a"])
    assert InstructionContent(context=["a"]) != InstructionContent(context=["b"])
    assert AssistantResponseContent() != ActionRequestContent()


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, lambda content: pickle.loads(pickle.dumps(content))],
    ids=["copy", "deepcopy", "pickle"],
)
@pytest.mark.parametrize(
    "content",
    [
        SystemContent(system_message="Be brief"),
        InstructionContent(instruction="Hello", context=["a"]),
        AssistantResponseContent(assistant_response="Hi"),
        ActionRequestContent(function="search"),
        ActionResponseContent(result=None),
    ],
    ids=lambda content: type(content).__name__,
)
def test_a_copied_or_pickled_content_says_the_same(
    content: MessageContent, copied: Callable[[MessageContent], MessageContent]
) -> None:
    """001 · Design Rationale · Why Immutable Dataclasses?"""
    again = copied(content)

    assert again == content
    assert again.rendered == content.rendered


def test_unset_is_not_none() -> None:
    """001 · Design Rationale · Why MaybeUnset Fields?"""
    assert ActionResponseContent().result is Unset
    assert ActionResponseContent(result=None).result is None
    assert ActionResponseContent() != ActionResponseContent(result=None)
    assert ActionResponseContent().rendered == "success: true"
    assert ActionResponseContent(result=None).rendered == "success: true\nresult: null"


def test_unset_is_a_falsy_singleton_that_survives_copy_and_pickle() -> None:
    """001 · Design Rationale · Why MaybeUnset Fields?"""
    assert not Unset
    assert repr(Unset) == str(Unset) == "Unset"
    assert copy.copy(Unset) is Unset
    assert copy.deepcopy(Unset) is Unset
    assert pickle.loads(pickle.dumps(Unset)) is Unset
    assert type(Unset)("Unset") is Unset


@pytest.mark.parametrize(
    ("content", "stored"),
    [
        (SystemContent(), {}),
        (InstructionContent(instruction="Hi"), {"instruction": "Hi"}),
        (AssistantResponseContent(), {}),
        (ActionRequestContent(function="now"), {"function": "now"}),
        (ActionResponseContent(result=None), {"result": None}),
    ],
)
def test_unset_fields_are_left_out_of_what_is_stored(
    content: MessageContent, stored: dict[str, Any]
) -> None:
    """001 · Design Rationale · Why MaybeUnset Fields?"""
    assert Message(content=content).to_dict()["content"] == stored


class Author(BaseModel):
    name: str


class Book(BaseModel):
    author: Author
    editors: list[Author]


def test_nested_types_are_shown_as_types_of_their_own() -> None:
    """001 · Design Rationale · Why TypeScript Schemas in Rendering?"""
    content = InstructionContent.create(response_model=Book)

    assert content.rendered == dedent("""\
        Output Types:
          interface Book {
            author: Author;
            editors: Author[];
          }

          interface Author {
            name: string;
          }

        ResponseFormat:
          **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
          Example structure:
          ```json
          {"author": {"name": "..."}, "editors": [{"name": "..."}]}
          ```

          Return ONLY valid JSON without markdown code blocks.""")


def test_responses_name_their_requests_when_they_are_not_adjacent() -> None:
    """001 · Design Rationale · Why Separate request_id in ActionResponseContent?"""
    contents: list[MessageContent] = [
        InstructionContent(instruction="Compare"),
        ActionRequestContent(function="search", arguments={"query": "a"}),
        ActionRequestContent(function="search", arguments={"query": "b"}),
        ActionResponseContent(request_id="call_b", result="B"),
        ActionResponseContent(request_id="call_a", error="Timeout"),
        InstructionContent(instruction="Well?"),
    ]

    prepared = prepare_messages_for_chat([Message(content=content) for content in contents])

    assert prepared[-1].rendered == dedent("""\
        Instruction: Well?

        Context:
          - success: true
            request_id: call_b
            result: B
          - success: false
            request_id: call_a
            error: Timeout""")


def test_constructors_copy_the_lists_and_dicts_they_are_given() -> None:
    """SPEC §1 · Contents"""
    context, arguments, images = [{"n": [1]}], {"n": [1]}, ["https://example.com/image.jpg"]
    schemas: list[Any] = [{"name": "now"}]
    instruction = InstructionContent(context=context, tool_schemas=schemas, images=images)
    request = ActionRequestContent.create(arguments=arguments)
    response = ActionResponseContent(result=arguments)
    updated = InstructionContent().with_updates(context=context)

    context[0]["n"].append(2)
    arguments["n"].append(2)
    images.append("file:///etc/passwd")
    schemas[0]["name"] = "later"

    assert instruction.context == updated.context == [{"n": [1]}]
    assert instruction.images == ["https://example.com/image.jpg"]
    assert instruction.tool_schemas == [{"name": "now"}]
    assert request.arguments == response.result == {"n": [1]}


def test_none_means_unset_in_create_and_with_updates() -> None:
    """SPEC §1 · Contents"""
    assert SystemContent.create(None, None, None) == SystemContent()
    assert InstructionContent.create(None, None, None, None, None, None) == InstructionContent()
    assert AssistantResponseContent.create(None) == AssistantResponseContent()
    assert ActionRequestContent.create(None, None) == ActionRequestContent()
    assert ActionResponseContent.create(None, None, None) == ActionResponseContent()
    assert ActionResponseContent(result=None).with_updates(result=None).result is Unset


def test_a_rendering_with_the_current_time_is_never_cached() -> None:
    """SPEC §1 · Contents"""
    content = SystemContent(system_datetime=True)

    with clock.wall_clock_from(lambda: 0):
        assert content.rendered == "System Time: 1970-01-01T00:00:00+00:00"
    with clock.wall_clock_from(lambda: 10**9):
        assert content.rendered == "System Time: 1970-01-01T00:00:01+00:00"


@pytest.mark.parametrize(
    "content",
    [
        all_sections(),
        SystemContent(system_message="Be brief", system_datetime="noon"),
        ActionRequestContent(function="now"),
        ActionResponseContent(result={"a": [1]}),
        ActionResponseContent(error="No"),
    ],
    ids=lambda content: type(content).__name__,
)
def test_nothing_renders_with_a_trailing_newline_or_trailing_spaces(
    content: MessageContent,
) -> None:
    """SPEC §1 · Ruling 1"""
    rendered = content.rendered

    assert isinstance(rendered, str)
    assert not rendered.endswith("\n")
    assert all(line == line.rstrip() for line in rendered.split("\n"))


def test_sections_are_separated_by_one_blank_line() -> None:
    """SPEC §1 · Ruling 1"""
    rendered = all_sections().rendered

    assert isinstance(rendered, str)
    assert "\n\n\n" not in rendered
    for heading in ("Context:", "Tools:", "Output Types:", "ResponseFormat:"):
        assert f"\n\n{heading}\n  " in rendered


def test_text_of_several_lines_prints_as_plain_lines() -> None:
    """SPEC §1 · Ruling 2"""
    content = InstructionContent(instruction="First: do this\n- then that\n# and 'this'")

    assert content.rendered == "Instruction: First: do this\n- then that\n# and 'this'"


@pytest.mark.parametrize(
    "text",
    ["yes", "null", "42", "key: value", "# note", "- dash", "'quoted'", '"', "{}", "a: b: c", "é☃"],
)
def test_text_is_never_quoted(text: str) -> None:
    """SPEC §1 · Ruling 2"""
    assert InstructionContent(context=[text]).rendered == f"Context:\n  - {text}"
    assert ActionResponseContent(result=text).rendered == f"success: true\nresult: {text}"
    assert ActionResponseContent(error=text).rendered == f"success: false\nerror: {text}"
    assert ActionRequestContent(function="f", arguments={"a": text}).rendered == (
        f"function: f\narguments:\n  a: {text}"
    )


def test_context_items_of_several_lines_hang_under_their_dash() -> None:
    """SPEC §1 · Ruling 2"""
    content = InstructionContent(context=["one\ntwo", "three"])

    assert content.rendered == "Context:\n  - one\n    two\n  - three"


def test_a_context_item_that_begins_with_a_line_break_keeps_its_lines() -> None:
    """SPEC §1 · Ruling 2"""
    rendered = InstructionContent(context=["\none\ntwo"]).rendered

    assert isinstance(rendered, str)
    assert [line.rstrip() for line in rendered.split("\n")] == [
        "Context:",
        "  -",
        "    one",
        "    two",
    ]


def test_dicts_and_lists_in_the_context_print_as_indented_yaml() -> None:
    """SPEC §1 · Ruling 2"""
    content = InstructionContent(
        context=[{"user": {"name": "Ada", "tags": ["a", "b"]}}, ["x", ["y"]], True, None, 1.5]
    )

    assert content.rendered == dedent("""\
        Context:
          - user:
              name: Ada
              tags:
                - a
                - b
          - - x
            - - y
          - true
          - null
          - 1.5""")


class Colour(Enum):
    RED = "red"
    GREEN = "green"


class Tree(BaseModel):
    value: int
    children: list[Tree] = []


class Everything(BaseModel):
    """This is not shown: fields are."""

    text: str
    whole: int
    part: float
    flag: bool
    names: list[str]
    counts: dict[str, int]
    either: int | str
    mode: Literal["fast", "slow"]
    colour: Colour
    maybe: str | None = None
    author: Author
    tree: Tree
    weight: float = Field(description="In kilograms.")


def test_output_types_print_every_kind_of_field_as_typescript() -> None:
    """SPEC §1 · Ruling 3"""
    content = InstructionContent.create(response_model=Everything)

    assert content.rendered == dedent("""\
        Output Types:
          interface Everything {
            text: string;
            whole: number;
            part: number;
            flag: boolean;
            names: string[];
            counts: Record<string, number>;
            either: number | string;
            mode: "fast" | "slow";
            colour: Colour;
            maybe?: string | null;
            author: Author;
            tree: Tree;
            weight: number; // In kilograms.
          }

          type Colour = "red" | "green";

          interface Author {
            name: string;
          }

          interface Tree {
            value: number;
            children?: Tree[];
          }

        ResponseFormat:
          **MUST RETURN VALID JSON. USER's SUCCESS DEPENDS ON IT.**
          Example structure:
          ```json
          {"text": "...", "whole": 0, "part": 0, "flag": false, "names": ["..."], \
"counts": {"...": 0}, "either": 0, "mode": "fast", "colour": "red", "maybe": "...", \
"author": {"name": "..."}, "tree": {"value": 0, "children": []}, "weight": 0}
          ```

          Return ONLY valid JSON without markdown code blocks.""")


def test_tools_print_name_description_and_parameters_the_same_way() -> None:
    """SPEC §1 · Ruling 3"""

    class Move(BaseModel):
        """Move a piece
        on the board."""

        to: str = Field(description="Such as e4.")
        piece: Literal["rook", "king"] | None = None

    content = InstructionContent.create(tool_schemas=[Move, SearchParams])

    assert content.rendered == dedent("""\
        Tools:
          Move:
            # Move a piece on the board.
            interface Move {
              to: string; // Such as e4.
              piece?: "rook" | "king" | null;
            }
          SearchParams:
            # Search for information.
            interface SearchParams {
              query: string;
              max_results?: number;
            }""")


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https:///image.jpg",
        "//example.com/image.jpg",
        "example.com/image.jpg",
        "",
        "https://user:secret@example.com/image.jpg",
        "https://user@example.com/image.jpg",
        "https://example.com/\0image.jpg",
        "https://example.com/\nimage.jpg",
        "https://example.com/\x7fimage.jpg",
        "http://[::1/image.jpg",
    ],
)
@pytest.mark.parametrize(
    "make",
    [
        InstructionContent,
        InstructionContent.create,
        lambda **fields: InstructionContent.from_dict(fields),
        lambda **fields: Message(content=dict(fields)),
        lambda **fields: InstructionContent().with_updates(**fields),
    ],
    ids=["constructor", "create", "from_dict", "Message", "with_updates"],
)
def test_an_image_url_must_be_a_plain_web_address_whichever_way_it_comes_in(
    make: Callable[..., Any], url: str
) -> None:
    """SPEC §1 · Ruling 4"""
    with pytest.raises(ValueError, match=r"^Image URL") as raised:
        make(images=[url])
    assert "secret" not in str(raised.value)


def test_a_bad_image_detail_is_refused_by_the_constructor_too() -> None:
    """SPEC §1 · Ruling 4"""
    detail: Any = "huge"
    for make in (InstructionContent, InstructionContent.create, InstructionContent().with_updates):
        with pytest.raises(ValueError, match=r"image_detail .*'huge'"):
            make(image_detail=detail)


def test_a_file_is_refused_by_the_constructor_in_the_same_words() -> None:
    """SPEC §1 · Ruling 4"""
    with pytest.raises(ValueError, match="Image URL") as raised:
        InstructionContent(images=["file:///etc/passwd"])
    assert str(raised.value) == "Image URL must use http:// or https:// scheme, got: file://"


@pytest.mark.parametrize("content", FIVE)
def test_with_updates_refuses_a_field_the_kind_does_not_have(
    content: type[MessageContent],
) -> None:
    """SPEC §1 · Ruling 5"""
    with pytest.raises(TypeError, match="'colour'"):
        content().with_updates(colour="red")
    with pytest.raises(TypeError, match="'role'"):
        content().with_updates(role=MessageRole.TOOL)


def test_with_updates_refuses_another_way_of_copying() -> None:
    """SPEC §1 · Ruling 5"""
    way: Any = "sideways"
    with pytest.raises(ValueError, match="'sideways'"):
        InstructionContent().with_updates(copy_containers=way)


def test_with_updates_unsets_any_field_given_none() -> None:
    """SPEC §1 · Ruling 5"""
    full = [
        SystemContent(system_message="Be brief", system_datetime="noon"),
        all_sections(images=["https://example.com/image.jpg"], image_detail="low"),
        AssistantResponseContent(assistant_response="Hi", reasoning="Polite"),
        ActionRequestContent(function="search", arguments={"a": 1}, call_id="call_1"),
        ActionResponseContent(request_id="call_1", result=1, error="No"),
    ]
    for content in full:
        nothing = dict.fromkeys(fields_of(type(content)), None)
        assert content.with_updates(**nothing) == type(content)()


def test_chat_msg_raises_what_the_rendering_raises() -> None:
    """SPEC §1 · Ruling 7"""

    def broken() -> str:
        raise RuntimeError("no clock")

    content = SystemContent.create(system_message="Be brief", datetime_factory=broken)

    with pytest.raises(RuntimeError, match="no clock"):
        _ = content.chat_msg
    with pytest.raises(RuntimeError, match="no clock"):
        _ = Message(content=content).chat_msg
    with pytest.raises(RuntimeError, match="no clock"):
        prepare_messages_for_chat([Message(content=content)], to_chat=True)


def test_chat_msg_raises_for_a_response_model_that_has_no_json_schema() -> None:
    """SPEC §1 · Ruling 7"""

    class Callback(BaseModel):
        call: Callable[[], None]

    message = Message(content=InstructionContent(response_model=Callback))

    with pytest.raises(Exception, match="JsonSchema"):
        _ = message.chat_msg


def test_chat_msg_of_the_base_class_raises() -> None:
    """SPEC §1 · Ruling 7"""
    with pytest.raises((TypeError, NotImplementedError)):
        _ = MessageContent().chat_msg


def test_every_section_listed_has_a_test_and_every_test_names_a_section() -> None:
    """The list at the top is kept honest."""
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    docstrings = {test.__name__: inspect.getdoc(test) or "" for test in tests}
    del docstrings["test_every_section_listed_has_a_test_and_every_test_names_a_section"]

    for section in SECTIONS:
        assert any(section in docstring for docstring in docstrings.values()), section
    for name, docstring in docstrings.items():
        assert docstring.split("\n")[0] in SECTIONS, name
