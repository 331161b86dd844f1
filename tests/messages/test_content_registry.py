"""Contents that a program defines itself, in every room that a message passes."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sennit
from sennit import (
    AssistantResponseContent,
    Client,
    CodecError,
    ExistsError,
    InstructionContent,
    InvalidTypeError,
    Message,
    MessageContent,
    MessageRole,
    OpaqueContent,
    Session,
    Unset,
    ValidationError,
    prepare_messages_for_chat,
    to_model_messages,
)
from sennit.learning.export import ExportOptions
from sennit.messages import MaybeUnset
from sennit.messages.content_registry import CONTENT_KINDS
from sennit.testing import ScriptedModel
from tests import strategies as some
from tests.http_server import serving
from tests.strategies import ReceiptContent, RemarkContent

pytest_plugins = ("tests.durable",)


@dataclass(frozen=True, slots=True)
class WeatherContent(MessageContent):
    """What it is like outside."""

    kind: ClassVar[str] = "tests.weather"
    role: ClassVar[MessageRole] = MessageRole.USER

    place: str
    degrees: float = 0.0
    notes: MaybeUnset[list[str]] = Unset

    def __post_init__(self) -> None:
        if self.degrees < -273.15:
            raise ValueError("It is never as cold as that.")

    @property
    def rendered(self) -> str:
        return f"Weather in {self.place}: {self.degrees} °C"


@dataclass(frozen=True, slots=True)
class ChartContent(MessageContent):
    """A picture with a caption, as blocks."""

    role: ClassVar[MessageRole] = MessageRole.USER

    caption: str
    url: str

    @property
    def rendered(self) -> list[dict[str, Any]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return [
            {"type": "text", "text": self.caption},
            {"type": "image_url", "image_url": {"url": self.url}},
        ]


@dataclass(frozen=True, slots=True)
class SensorContent(MessageContent):
    """What a sensor gave, which no call asked for."""

    role: ClassVar[MessageRole] = MessageRole.TOOL

    value: int


def ask(text: str) -> Message:
    return Message(InstructionContent(instruction=text))


def answer(text: str) -> Message:
    return Message(AssistantResponseContent(assistant_response=text))


def unknown(message: Message, name: str = "not.defined.here") -> Message:
    """The same message as a program reads it that has not defined its content."""
    return Message.from_dict({**message.to_dict(), "type": name})


def run(body: str, known: dict[str, Any], module: str) -> None:
    code = compile(body, module, "exec", dont_inherit=True)
    exec(code, {**known, "dataclass": dataclass, "__name__": module})


# The class


def test_the_name_is_the_class_name_in_snake_case_unless_it_is_given() -> None:
    assert (RemarkContent.kind, ReceiptContent.kind) == ("remark", "tests.receipt")
    assert CONTENT_KINDS["tests.weather"] is WeatherContent


def test_fields_are_checked_and_copied_as_those_of_every_content() -> None:
    notes = ["wind"]
    content = WeatherContent("Porto", 21, notes)
    notes.append("rain")
    assert content.notes == ["wind"]
    with pytest.raises(ValidationError, match=r"notes\[0\].*NaN|nan"):
        WeatherContent("Porto", notes=[float("nan")])  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidTypeError, match="place"):
        WeatherContent(object())  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidTypeError, match="has no field 'wind'; it has place, degrees, notes"):
        WeatherContent("Porto", wind=3)  # pyright: ignore[reportCallIssue]
    with pytest.raises(ValueError, match="never as cold"):
        WeatherContent("Porto", -300)


@pytest.mark.parametrize("content", [WeatherContent("Porto"), RemarkContent("Well.")])
def test_no_form_of_the_class_can_be_changed(content: MessageContent) -> None:
    for name in (*content.checks, "other"):
        with pytest.raises(FrozenInstanceError, match="with_updates"):
            setattr(content, name, "x")
        with pytest.raises(FrozenInstanceError):
            delattr(content, name)


def test_none_resets_a_field_to_its_default() -> None:
    content = WeatherContent("Porto", 21.5, ["wind"])
    assert content.with_updates(degrees=None, notes=None) == WeatherContent("Porto")
    with pytest.raises(ValidationError, match="needs 'place'"):
        content.with_updates(place=None)


def test_without_a_rendering_of_its_own_it_reads_as_its_fields() -> None:
    assert RemarkContent({"a": [1]}).rendered == "remark:\n  a:\n    - 1"
    assert RemarkContent().empty


@given(some.contents)
def test_equal_contents_have_equal_hashes(content: MessageContent) -> None:
    copied = content.with_updates("deep")
    assert copied == content
    assert hash(copied) == hash(content)
    assert hash(some_number_as_float(content)) == hash(content)


def some_number_as_float(content: MessageContent) -> MessageContent:
    """An equal content: 1 and 1.0 are equal in Python."""
    if isinstance(content, RemarkContent) and type(content.remark) is int:
        return RemarkContent(float(content.remark)) if content.remark < 2**50 else content
    return content


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("class A(MessageContent):\n    a: int\nA(1)", r"@dataclass\(frozen=True, slots=True\)"),
        ("class B(InstructionContent):\n    b: int", r"class B\(MessageContent\)"),
        ("@dataclass\nclass C(MessageContent):\n    words: str\nC('x')", "rename the field"),
        ("class D(MessageContent):\n    kind = 'system'", "built-in"),
        ("class D(MessageContent):\n    kind = 'tests.weather'", "WeatherContent.*kind: ClassVar"),
        ("class SystemContent(MessageContent): ...", "built-in"),
        ("class E(MessageContent):\n    kind = ''", "kind of E"),
        ("class E(MessageContent):\n    kind = 'a b'", "kind of E"),
        ("class E(MessageContent):\n    kind = 5", "kind of E"),
    ],
)
def test_a_class_that_cannot_be_a_content_is_refused_with_what_to_write(
    body: str, told: str
) -> None:
    known = {"MessageContent": MessageContent, "InstructionContent": InstructionContent}
    with pytest.raises((InvalidTypeError, ValidationError, ExistsError), match=told):
        run(body, known, "elsewhere")
    assert CONTENT_KINDS["tests.weather"] is WeatherContent


def test_a_class_may_be_defined_again_in_its_place_as_notebooks_do() -> None:
    body = (
        "@dataclass(slots=True)\nclass CellContent(MessageContent):\n    a: int = 1\nCellContent()"
    )
    for _ in range(2):
        run(body, {"MessageContent": MessageContent}, "notebook")
    assert Message.from_json(Message(CONTENT_KINDS["cell"](a=2)).to_json()).rendered == "a: 2"  # pyright: ignore[reportCallIssue]


# Stored as data


@given(st.builds(Message, some.own_contents | some.opaque_contents, metadata=some.json_dicts))
def test_it_is_stored_as_data_and_comes_back(message: Message) -> None:
    back = Message.from_json(message.to_json())
    assert (back.content, back.role, back.rendered) == (
        message.content,
        message.role,
        message.rendered,
    )
    assert back.to_json() == message.to_json()
    record = message.to_dict()
    assert (record["type"], record["role"]) == (message.content.kind, message.role.value)


@given(st.builds(Message, some.own_contents, sender=some.parties), some.kind_names)
def test_where_it_is_not_defined_it_is_kept_as_it_is(message: Message, name: str) -> None:
    stored = json.dumps({**json.loads(message.to_json()), "type": name}, ensure_ascii=False)
    there = Message.from_json(stored)
    assert isinstance(there.content, OpaqueContent)
    assert (there.content.type, there.content.fields) == (name, message.content.to_dict())
    assert there.role is message.role
    assert isinstance(there.rendered, str)
    assert json.loads(there.to_json()) == json.loads(stored)
    assert there.to_json().encode() == Message.from_json(there.to_json()).to_json().encode()


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("tests.weather", None),  # one that is not built in is stored with its role
        ("instruction", "user"),  # one that is built in is not
        ("", "user"),
        (5, "user"),
        ("tests.weather", "pirate"),
        ("tests.weather", 5),
        ("Instruction", None),
    ],
)
def test_a_stored_type_that_cannot_be_one_is_refused(name: Any, role: Any) -> None:
    stored: dict[str, Any] = {**Message(WeatherContent("Porto")).to_dict(), "type": name}
    del stored["role"]
    if role is not None:
        stored["role"] = role
    with pytest.raises(CodecError):
        Message.from_dict(stored)


def test_what_no_longer_fits_its_class_is_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    message = Message(WeatherContent("Porto"))
    for fields in ({"place": "Porto", "wind": 3}, {"degrees": 5}, {"place": "X", "degrees": -400}):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            there = Message.from_dict({**message.to_dict(), "content": fields})
        assert isinstance(there.content, OpaqueContent)
        assert there.to_dict()["content"] == fields
        assert "tests.weather" in caplog.text


# In prompts


def told(*messages: Message) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    session = Session()
    branch = session.create_branch(name="main")
    for message in messages:
        session.add_message(message, branches=branch)
    plain = prepare_messages_for_chat(session.messages, branch, to_chat=True)
    native = to_model_messages(session.messages, branch)
    assert plain == prepare_messages_for_chat(messages, to_chat=True)
    assert native == to_model_messages(messages)
    return plain, native


def test_prompts_hold_it_in_its_role() -> None:
    plain, native = told(
        ask("How is it?"),
        Message(RemarkContent("It depends.")),
        Message(WeatherContent("Porto", 21.0)),
        Message(SensorContent(7)),
        answer("Fine."),
    )
    expected = [
        ("assistant", "remark: It depends."),
        ("user", "Weather in Porto: 21.0 °C"),
        ("user", "value: 7"),
        ("assistant", "Fine."),
    ]
    assert [(one["role"], one["content"]) for one in plain[1:]] == expected
    assert [(one["role"], one["content"]) for one in native[1:]] == expected


def test_prompts_hold_one_that_is_not_defined_and_leave_out_one_that_says_nothing() -> None:
    there = unknown(Message(WeatherContent("Porto", 21.0)))
    plain, native = told(there, Message(RemarkContent()), Message(OpaqueContent("x")))
    assert plain == native == [{"role": "user", "content": "place: Porto\ndegrees: 21.0"}]


def test_an_answer_of_an_own_type_answers_so_that_the_form_is_asked_for_no_more() -> None:
    shaped = Message(InstructionContent(instruction="Look", response_model=some.Analysis))
    for messages in told(shaped, Message(RemarkContent("Seen.")), ask("And?")):
        assert "MUST RETURN VALID JSON" not in str(messages)


def test_blocks_of_an_own_type_belong_to_whoever_asks() -> None:
    chart = Message(ChartContent("Sales", "https://example.com/a.png"))
    session = Session()
    branch = session.create_branch(name="main")
    session.add_message(chart, branches=branch)
    for prepare in (
        lambda: prepare_messages_for_chat(session.messages, branch, to_chat=True),
        lambda: to_model_messages(session.messages, branch),
    ):
        first = prepare()
        first[0]["content"][0]["text"] = "changed"
        assert prepare()[0]["content"][0]["text"] == "Sales"
    assert chart.content.words.startswith("Sales")


@given(st.lists(st.builds(Message, some.contents), max_size=6))
def test_both_prompts_take_any_mixture(messages: list[Message]) -> None:
    for chat in (prepare_messages_for_chat(messages, to_chat=True), to_model_messages(messages)):
        assert {one["role"] for one in chat} <= {"system", "user", "assistant", "tool"}


# In stores, archives, search and files


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with sennit.open(address) as client:
        yield client


def filled(client: Client) -> Session:
    session = client.session("trip")
    main = session.create_branch(name="main")
    session.add_message(Message(WeatherContent("Matosinhos", 18.0, ["drizzle"])), branches=main)
    session.add_message(Message(RemarkContent("Take an umbrella.")), branches=main)
    return session


_ELSEWHERE = """
import sys, sennit
from sennit import OpaqueContent
address, archive = sys.argv[1:]
with sennit.open(address) as client:
    session = client.session("trip")
    for message in session.messages:
        assert type(message.content) is OpaqueContent, message.content
        print(message.role.value, message.rendered.replace("\\n", "|"))
    session.add_message(session.messages[0].clone(), branches="main")
    print(client.find("umbrella", limit=5)[0].abstract)
    client.export(archive)
"""


def _contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as opened:
        return {name: opened.read(name) for name in opened.namelist() if "manifest" not in name}


def test_another_program_reads_shows_finds_and_exports_it(
    client: Client, address: str, tmp_path: Path
) -> None:
    before = {str(one.id): one.to_json() for one in filled(client).messages}
    archive = tmp_path / "trip.zip"
    ran = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, address, str(archive)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [
        "user place: Matosinhos|degrees: 18.0|notes:|  - drizzle",
        "assistant remark: Take an umbrella.",
        "Take an umbrella.",
    ]
    with sennit.open(tmp_path / "other.db") as other:
        other.import_sessions(archive)
        there = other.session("trip")
        assert before.items() <= {str(one.id): one.to_json() for one in there.messages}.items()
        assert [type(one.content) for one in there.messages] == [
            WeatherContent,
            RemarkContent,
            WeatherContent,
        ]
        again = tmp_path / "again.zip"
        other.export(again)
        assert _contents(archive) == _contents(again)


def test_it_is_found_by_the_words_of_its_fields_and_erased_with_its_message(client: Client) -> None:
    session = filled(client)
    assert client.find("drizzle", limit=5)[0].abstract == "Matosinhos 18.0 drizzle"
    session.remove_message(session.messages[0].id)
    assert "drizzle" not in str(client.find("drizzle", limit=5))


def test_a_stored_conversation_with_it_is_opened_run_and_exported(
    client: Client, tmp_path: Path
) -> None:
    filled(client)
    session = client.session("trip")
    branch = session.get_branch("main")
    session.add_message(Message(WeatherContent("Porto", 21.0)), branches=branch)
    model = ScriptedModel(["Nice."])
    result = session.conversation(branch, model=model).run()
    assert (result.stop_reason, result.text) == ("stable", "Nice.")
    assert [one["role"] for one in model.requests[0].messages][-3:] == ["user", "assistant", "user"]
    assert model.requests[0].messages[-1]["content"] == "Weather in Porto: 21.0 °C"
    path = tmp_path / "rows.jsonl"
    client.export_training(path, ExportOptions(format="openai"))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["content"] for one in rows[0]["messages"]][-2:] == [
        "Weather in Porto: 21.0 °C",
        "Nice.",
    ]


def test_a_commit_archives_it_with_the_rest(client: Client) -> None:
    session = filled(client)
    result = session.commit()
    assert result["archived"]
    lines = client.fs.read("viking://session/trip/history/archive_001/messages.jsonl")
    rows = [json.loads(line) for line in lines.splitlines()]
    assert [(row["role"], row["parts"][0]["text"]) for row in rows] == [
        ("user", "Weather in Matosinhos: 18.0 °C"),
        ("assistant", "remark: Take an umbrella."),
    ]


def test_the_server_lists_it_with_its_type(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "s.db") as client:
        session = filled(client)
        where = f"/api/sessions/{session.id}/branches/{session.get_branch('main').id}/messages"
    with serving(tmp_path / "s.db") as server:
        listed = server.get(where).json()["messages"]
    assert [(one["kind"], one["type"], one["role"]) for one in listed] == [
        ("custom", "tests.weather", "user"),
        ("custom", "remark", "assistant"),
    ]
    assert listed[0]["text"] == "Weather in Matosinhos: 18.0 °C"


def test_what_a_user_says_in_it_is_remembered() -> None:
    @dataclass(frozen=True, slots=True)
    class FormContent(MessageContent):
        role: ClassVar[MessageRole] = MessageRole.USER
        said: str = field(default="")

        @property
        def rendered(self) -> str:
            return self.said

    with sennit.open(":memory:") as client:
        session = client.session("form")
        main = session.create_branch(name="main")
        session.add_message(Message(FormContent("I prefer short answers.")), branches=main)
        session.commit()
        assert "short answers" in str(client.memory.all())
