"""A model that repeats its prompt has not answered: the example in it is not taken for a value."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, create_model

from sennit import InstructionContent, OutputError, Session
from sennit.messages.message import Message
from sennit.messages.output_schema import ModelSchema, model_schema
from sennit.messages.output_validation import validate_output
from sennit.messages.prompt.tool_chat import to_model_messages
from sennit.messages.typescript import example
from sennit.services.models.request import ModelRequest
from sennit.testing import ScriptedModel


class Count(BaseModel):
    turns: int


def echo(request: ModelRequest) -> str:
    said = request.messages[-1]["content"]
    return f"You said: {said} ({len(request.messages)} messages)"


def conducted(operation: str, model: ScriptedModel, **params: Any) -> Any:
    session = Session()
    branch = session.create_branch("main", resources="*", capabilities="*")
    session.services.register(model)

    async def work() -> Any:
        made = await session.conduct(
            branch=branch, operation=operation, imodel="scripted", response_model=Count, **params
        )
        return await made.invoke()

    return asyncio.run(work())


WAYS: dict[str, dict[str, Any]] = {
    "communicate": {"instruction": "How many turns?"},
    "operate": {"instruction": "How many turns?"},
    "parse": {"text": "There were some turns."},
}


@pytest.mark.parametrize("operation", WAYS)
def test_a_model_that_repeats_the_prompt_has_no_answer(operation: str) -> None:
    model = ScriptedModel([echo] * 9, name="scripted")
    with pytest.raises(OutputError) as caught:
        conducted(operation, model, **WAYS[operation])
    assert len(model.requests) == 3
    repair = str(model.requests[1].messages[-1]["content"])
    assert "repeats the example of the prompt" in repair
    assert "turns" in str(caught.value) or caught.value.problems


@pytest.mark.parametrize("operation", WAYS)
def test_a_model_that_repeats_the_prompt_is_told_and_may_answer(
    operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel([echo, '{"turns": 7}'], name="scripted")
    assert conducted(operation, model, **WAYS[operation]) == Count(turns=7)
    assert "repeats the prompt's example" in caplog.text


@pytest.mark.parametrize("operation", WAYS)
@pytest.mark.parametrize(
    "answer", ['{"turns": 0}', '```json\n{"turns": 0}\n```', 'It is {"turns": 0}.']
)
def test_an_answer_that_happens_to_be_the_example_is_taken(operation: str, answer: str) -> None:
    model = ScriptedModel([answer], name="scripted")
    assert conducted(operation, model, **WAYS[operation]) == Count(turns=0)


def test_an_answer_beside_the_repeated_prompt_is_taken() -> None:
    model = ScriptedModel([lambda asked: f'{echo(asked)}\n{{"turns": 3}}'], name="scripted")
    assert conducted("communicate", model, **WAYS["communicate"]) == Count(turns=3)


kinds = st.sampled_from([int, str, float, bool, list[int], dict[str, str], Count, int | None])
forms = st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), kinds, min_size=1, max_size=5)


@given(forms, st.booleans(), st.sampled_from(["{}", "Sure: {}", "> {}", "{}\nDone."]))
def test_no_prompt_holds_an_answer_to_itself(
    fields: dict[str, Any], as_schema: bool, around: str
) -> None:
    given: dict[str, Any] = {f"f_{name}": (kind, ...) for name, kind in fields.items()}
    form: Any = create_model("Form", **given)
    wanted = ModelSchema("Form", form.model_json_schema()) if as_schema else form
    content = InstructionContent(instruction="Answer.", response_model=wanted)
    prompt = str(to_model_messages([Message(content)])[-1]["content"])
    with pytest.raises(OutputError):
        validate_output(around.replace("{}", prompt), wanted)
    value = json.loads(example(model_schema(wanted)))
    taken = validate_output(json.dumps(value), wanted)
    assert (taken if as_schema else taken.model_dump(mode="json")) == value
