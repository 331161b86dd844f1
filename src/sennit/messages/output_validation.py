"""Output validation: find the value in a model's answer and check it against a schema.

A pydantic class validates and builds its own instances. A bare JSON schema (from a stored message,
or given as a dict) is validated here, by the keywords that are common in output schemas. It is
untrusted input: unknown keywords and invalid schemas are ignored, and the cost is proportional to
the sizes of schema and value.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote

from sennit.errors import OutputError, short_repr
from sennit.messages.codec import dumps
from sennit.messages.lenient_json import values_in
from sennit.messages.output_schema import ModelSchema, model_name, model_schema
from sennit.messages.render import FORMAT_WORDS
from sennit.messages.typescript import example, typescript

if TYPE_CHECKING:
    from pydantic import ValidationError

    from sennit.messages.output_schema import Model

_log = logging.getLogger(__name__)
DEFAULT_REPAIRS = 2
"""The default number of repair requests, which tell the model the validation errors."""
_MAX_PROBLEMS = 8
_REPEATED_EXAMPLE = "it repeats the example of the prompt; answer with values of your own"

_Path: TypeAlias = tuple[str | int, ...]
"""The path of a value: keys and indices, outermost first."""


def validate_output(text: str, schema: Model) -> Any:
    """Return the first value in a text that fits: an instance of a pydantic class, or plain data.

    The example of the prompt does not count if the text repeats the prompt. Raises OutputError with
    the `problems` of the last value.
    """
    problems = ["there is no complete JSON value in it"]
    shown_example = _example_in(text, schema)
    for value in values_in(text):
        if shown_example is not None and _canonical_json(value) == shown_example:
            problems = [_REPEATED_EXAMPLE]
            _log.warning("An answer for %r repeats the prompt's example.", model_name(schema))
            continue
        fitting, problems = _validate(value, schema)
        if not problems:
            return fitting
    raise OutputError(
        f"The answer does not fit {model_name(schema)!r}: {'; '.join(problems)}",
        problems=problems,
        said=text,
    )


def _example_in(text: str, schema: Model) -> str | None:
    """Return the example of the prompt for a schema, if the text repeats such a prompt."""
    if not any(words in text for words in FORMAT_WORDS):
        return None
    return _canonical_json(json.loads(example(model_schema(schema))))


def _canonical_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def unfit_error(
    model: str, schema: Model, attempts: int, problems: Sequence[str], text: str
) -> OutputError:
    """Return the error for a model whose answers never fit the schema."""
    return OutputError(
        f"Model {model!r} gave no answer that fits {model_name(schema)!r} (asked {attempts} "
        f"times); the last: {'; '.join(problems)}. It said: {short_repr(text)}",
        problems=problems,
        said=text,
    )


def repair_problems(error: OutputError, finish: str | None) -> list[str]:
    """Return the problems of an answer, worded for the model."""
    if finish == "length":
        return ["it was cut off at the limit of tokens (max_tokens)", *error.problems]
    return [*error.problems]


def repair_prompt(problems: Sequence[str], schema: Model) -> str:
    """Return the message to a model whose answer does not fit."""
    bullets = "\n".join(f"- {problem}" for problem in problems)
    return f"That answer cannot be used:\n{bullets}\n\nAnswer again, {_form(schema)}"


def output_form(schema: Model) -> str:
    """Return the message to a model whose instruction does not describe the schema."""
    return f"Answer {_form(schema)}"


def _form(schema: Model) -> str:
    type_text = typescript(model_schema(schema), model_name(schema))
    return f"in this form:\n{type_text}\n\nReturn ONLY valid JSON without markdown code blocks."


def problems_with(value: Any, schema: Model) -> list[str]:
    """Return validation problems as "field: problem"; empty if there are none."""
    return _validate(value, schema)[1]


def _validate(value: Any, schema: Model) -> tuple[Any, list[str]]:
    if isinstance(schema, ModelSchema):
        return value, _check_schema(_as_data(value), schema.schema)
    from pydantic import ValidationError

    try:
        if isinstance(value, schema):
            return value, []
        try:
            encoded = dumps(value)
        except ValueError:  # not plain data, such as parameters that hold messages
            return schema.model_validate(value), []
        return schema.model_validate_json(encoded), []
    except ValidationError as error:
        return None, _problem_texts(error)


def _check_schema(value: Any, schema: Mapping[str, Any]) -> list[str]:
    try:
        return _SchemaChecker(schema).problems(value, schema, ())
    except RecursionError:
        return ["the value: is nested too deeply to be checked"]


def _as_data(value: Any) -> Any:
    """Return an instance of a pydantic class as plain data."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def _problem_texts(error: ValidationError) -> list[str]:
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    return _first_problems(f"{_format_path(entry['loc'])}: {entry['msg']}" for entry in errors)


def _first_problems(problems: Iterable[str]) -> list[str]:
    first = list(islice(problems, _MAX_PROBLEMS + 1))
    return [*first[:_MAX_PROBLEMS], "and more"] if len(first) > _MAX_PROBLEMS else first


def _format_path(path: _Path) -> str:
    return ".".join(map(str, path)) or "the value"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": _is_integer,
    "number": _is_number,
}


_Limits: TypeAlias = Mapping[str, tuple[Callable[[Any, Any], bool], str]]
"""Keywords, each with the comparison that violates its limit and the problem."""
_NUMBER_LIMITS: _Limits = {
    "minimum": (lt, "must be at least {}"),
    "exclusiveMinimum": (le, "must be more than {}"),
    "maximum": (gt, "must be at most {}"),
    "exclusiveMaximum": (ge, "must be less than {}"),
}
_TEXT_LIMITS: _Limits = {
    "minLength": (lt, "must have at least {} characters"),
    "maxLength": (gt, "must have at most {} characters"),
}
_LIST_LIMITS: _Limits = {
    "minItems": (lt, "must have at least {} items"),
    "maxItems": (gt, "must have at most {} items"),
}


class _SchemaChecker:
    """A validator for one schema document; references outside of it are ignored."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        # Each reference is followed once per path, so cycles and repeated references cost nothing.
        self._problems_by_reference: dict[tuple[str, _Path], list[str]] = {}

    def problems(self, value: Any, schema: Any, path: _Path) -> list[str]:
        """Return the first problems of a value, by path."""
        if schema is False:
            return [f"{_format_path(path)}: no value is allowed here"]
        if not isinstance(schema, Mapping):
            return []
        return _first_problems(self._check_keywords(value, cast("Mapping[str, Any]", schema), path))

    def _check_keywords(self, value: Any, rules: Mapping[str, Any], path: _Path) -> Iterator[str]:
        yield from self._check_reference(value, rules.get("$ref"), path)
        for problem in _value_problems(value, rules):
            yield f"{_format_path(path)}: {problem}"
        yield from self._check_combined(value, rules, path)
        if isinstance(value, dict):
            yield from self._check_fields(cast("dict[str, Any]", value), rules, path)
        elif isinstance(value, list):
            yield from self._check_items(cast("list[Any]", value), rules, path)

    def _check_reference(self, value: Any, reference: Any, path: _Path) -> list[str]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return []
        key = (reference, path)
        if key not in self._problems_by_reference:
            self._problems_by_reference[key] = []  # while it is followed
            self._problems_by_reference[key] = self.problems(value, self._resolve(reference), path)
        return self._problems_by_reference[key]

    def _resolve(self, reference: str) -> Any:
        target: Any = self._document
        for step in reference[1:].split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            target = _as_mapping(target).get(name, True)
        return target

    def _check_combined(self, value: Any, rules: Mapping[str, Any], path: _Path) -> Iterator[str]:
        for subschema in _as_list(rules.get("allOf")):
            yield from self.problems(value, subschema, path)
        for keyword in ("anyOf", "oneOf"):
            problem_lists = [
                self.problems(value, subschema, path) for subschema in _as_list(rules.get(keyword))
            ]
            if problem_lists and all(problem_lists):
                yield from min(problem_lists, key=len)

    def _check_fields(
        self, value: dict[str, Any], rules: Mapping[str, Any], path: _Path
    ) -> Iterator[str]:
        properties = _as_mapping(rules.get("properties"))
        additional = (
            True if "patternProperties" in rules else rules.get("additionalProperties", True)
        )
        for name in _as_list(rules.get("required")):
            if isinstance(name, str) and name not in value:
                yield f"{_format_path((*path, name))}: is missing"
        for name, item in value.items():
            schema = properties.get(name, additional)
            if schema is False:
                yield f"{_format_path((*path, name))}: is not a known field"
            else:
                yield from self.problems(item, schema, (*path, name))

    def _check_items(
        self, value: list[Any], rules: Mapping[str, Any], path: _Path
    ) -> Iterator[str]:
        prefix = _as_list(rules.get("prefixItems"))
        for index, item in enumerate(value):
            schema = prefix[index] if index < len(prefix) else rules.get("items", True)
            yield from self.problems(item, schema, (*path, index))


def _value_problems(value: Any, rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a value itself."""
    types = [
        name for name in _as_list(rules.get("type")) if isinstance(name, str) and name in _TYPES
    ]
    if types and not any(_TYPES[name](value) for name in types):
        yield f"must be {' or '.join(types)}"
    if "const" in rules and not _is_same_json(value, rules["const"]):
        yield f"must be {short_repr(rules['const'])}"
    if "enum" in rules and not any(
        _is_same_json(value, option) for option in _as_list(rules["enum"])
    ):
        yield f"must be one of {short_repr(rules['enum'])}"
    if _is_number(value):
        yield from _limit_problems(value, rules, _NUMBER_LIMITS)
    elif isinstance(value, str):
        yield from _limit_problems(len(value), rules, _TEXT_LIMITS)
    elif isinstance(value, list):
        yield from _limit_problems(len(cast("list[Any]", value)), rules, _LIST_LIMITS)


def _limit_problems(size: Any, rules: Mapping[str, Any], limits: _Limits) -> Iterator[str]:
    for keyword, (is_violated, problem) in limits.items():
        if _is_number(limit := rules.get(keyword)) and is_violated(size, limit):
            yield problem.format(limit)


def _is_same_json(value: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; in Python, True == 1."""
    if _is_number(value) or _is_number(other):
        return _is_number(value) and _is_number(other) and value == other
    return type(value) is type(other) and value == other


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return cast("list[Any]", value) if isinstance(value, list) else [value]


def _as_mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
