"""Output validation: find the value in a model's answer and check it against a schema.

A pydantic class checks and builds its own instances. A bare JSON schema (from a stored message, or
given as a dict) is checked here against the keywords that models are usually asked for; those not
known here ask for nothing. Schemas come from strangers too, so whatever makes no sense in one asks
for nothing, and the cost stays in proportion to schema and value.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias, cast
from urllib.parse import unquote

from sennit.errors import OutputError, shown
from sennit.messages.codec import dumps, loads
from sennit.messages.output_schema import ModelSchema, model_name, model_schema
from sennit.messages.render import FORMAT_WORDS
from sennit.messages.typescript import example
from sennit.operations.lenient_json import values_in

if TYPE_CHECKING:
    from pydantic import ValidationError

    from sennit.messages.output_schema import Model

_log = logging.getLogger(__name__)
_SHOWN = 8
_REPEATED = "it repeats the example of the prompt; answer with values of your own"

_Place: TypeAlias = tuple[str | int, ...]
"""Where a value stands: keys and positions, from the outside in."""


def fitted(said: str, wanted: Model) -> Any:
    """The value in a text that fits: an instance of a pydantic class, or plain data.

    The example that a prompt shows is no answer where the text repeats the prompt. Raises
    OutputError, whose `problems` say what to mend; of several values the last is told of.
    """
    problems = ["there is no complete JSON value in it"]
    shown_example = _example_in(said, wanted)
    for value in values_in(said):
        if shown_example is not None and _encoded(value) == shown_example:
            problems = [_REPEATED]
            _log.warning("An answer for %r repeats the prompt's example.", model_name(wanted))
            continue
        fit, problems = _fit(value, wanted)
        if not problems:
            return fit
    raise OutputError(
        f"The answer does not fit {model_name(wanted)!r}: {'; '.join(problems)}",
        problems=problems,
        said=said,
    )


def _example_in(said: str, wanted: Model) -> bytes | None:
    """The example that a prompt shows for a form, if a text repeats words of such a prompt."""
    if not any(words in said for words in FORMAT_WORDS):
        return None
    return _encoded(loads(example(model_schema(wanted))))


def _encoded(value: Any) -> bytes:
    """A value as JSON, whatever the order of its keys was."""
    return dumps(_sorted(value))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return {key: _sorted(item) for key, item in sorted(pairs)}
    if isinstance(value, list):
        return [_sorted(item) for item in cast("list[Any]", value)]
    return value


def problems_with(value: Any, wanted: Model) -> list[str]:
    """Return validation problems as "field: problem"; empty if there are none."""
    return _fit(value, wanted)[1]


def _fit(value: Any, wanted: Model) -> tuple[Any, list[str]]:
    if isinstance(wanted, ModelSchema):
        return value, _check(_plain(value), wanted.schema)
    from pydantic import ValidationError

    try:
        if isinstance(value, wanted):
            return value, []
        try:
            encoded = dumps(value)
        except ValueError:  # not plain data, such as parameters that hold messages
            return wanted.model_validate(value), []
        return wanted.model_validate_json(encoded), []
    except ValidationError as error:
        return None, _told(error)


def _check(value: Any, schema: Mapping[str, Any]) -> list[str]:
    try:
        return _Check(schema).problems(value, schema, ())
    except RecursionError:
        return ["the value: is nested too deeply to be checked"]


def _plain(value: Any) -> Any:
    """An instance of a pydantic class as the data it stands for."""
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else value


def _told(error: ValidationError) -> list[str]:
    wrong = error.errors(include_url=False, include_context=False, include_input=False)
    return _first(f"{_path(one['loc'])}: {one['msg']}" for one in wrong)


def _first(problems: Iterable[str]) -> list[str]:
    few = list(islice(problems, _SHOWN + 1))
    return [*few[:_SHOWN], "and more"] if len(few) > _SHOWN else few


def _path(place: _Place) -> str:
    return ".".join(map(str, place)) or "the value"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": _is_whole,
    "number": _is_number,
}


class _Check:
    """Checks values against one schema document; nothing outside of it is ever looked at."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        # A reference is followed once for each place, however many ways lead to it.
        self._followed: dict[tuple[str, _Place], list[str]] = {}

    def problems(self, value: Any, schema: Any, at: _Place) -> list[str]:
        """Return the first problems of a value, by path."""
        if schema is False:
            return [f"{_path(at)}: nothing may stand here"]
        if not isinstance(schema, Mapping):
            return []
        return _first(self._all(value, cast("Mapping[str, Any]", schema), at))

    def _all(self, value: Any, rules: Mapping[str, Any], at: _Place) -> Iterator[str]:
        yield from self._referred(value, rules.get("$ref"), at)
        for problem in _own(value, rules):
            yield f"{_path(at)}: {problem}"
        yield from self._joined(value, rules, at)
        if isinstance(value, dict):
            yield from self._fields(cast("dict[str, Any]", value), rules, at)
        elif isinstance(value, list):
            yield from self._items(cast("list[Any]", value), rules, at)

    def _referred(self, value: Any, reference: Any, at: _Place) -> list[str]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            return []
        key = (reference, at)
        if key not in self._followed:
            self._followed[key] = []  # one that leads back to itself asks for nothing more
            self._followed[key] = self.problems(value, self._found(reference), at)
        return self._followed[key]

    def _found(self, reference: str) -> Any:
        found: Any = self._document
        for step in reference[1:].split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            found = _mapping(found).get(name, True)
        return found

    def _joined(self, value: Any, rules: Mapping[str, Any], at: _Place) -> Iterator[str]:
        for one in _listed(rules.get("allOf")):
            yield from self.problems(value, one, at)
        for word in ("anyOf", "oneOf"):
            told = [self.problems(value, one, at) for one in _listed(rules.get(word))]
            if told and all(told):
                yield from min(told, key=len)

    def _fields(self, value: dict[str, Any], rules: Mapping[str, Any], at: _Place) -> Iterator[str]:
        known = _mapping(rules.get("properties"))
        others = True if "patternProperties" in rules else rules.get("additionalProperties", True)
        for name in _listed(rules.get("required")):
            if isinstance(name, str) and name not in value:
                yield f"{_path((*at, name))}: is missing"
        for name, one in value.items():
            schema = known.get(name, others)
            if schema is False:
                yield f"{_path((*at, name))}: is no known field"
            else:
                yield from self.problems(one, schema, (*at, name))

    def _items(self, value: list[Any], rules: Mapping[str, Any], at: _Place) -> Iterator[str]:
        first = _listed(rules.get("prefixItems"))
        for number, one in enumerate(value):
            schema = first[number] if number < len(first) else rules.get("items", True)
            yield from self.problems(one, schema, (*at, number))


def _own(value: Any, rules: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a value itself."""
    types = [one for one in _listed(rules.get("type")) if isinstance(one, str) and one in _TYPES]
    if types and not any(_TYPES[one](value) for one in types):
        yield f"must be {' or '.join(types)}"
    if "const" in rules and not _same(value, rules["const"]):
        yield f"must be {shown(rules['const'])}"
    if "enum" in rules and not any(_same(value, one) for one in _listed(rules["enum"])):
        yield f"must be one of {shown(rules['enum'])}"
    if _is_number(value):
        yield from _range(value, rules)
    elif isinstance(value, str):
        yield from _size(len(value), rules, "Length", "characters")
    elif isinstance(value, list):
        yield from _size(len(cast("list[Any]", value)), rules, "Items", "items")


def _range(value: Any, rules: Mapping[str, Any]) -> Iterator[str]:
    if _is_number(least := rules.get("minimum")) and value < least:
        yield f"must be at least {least}"
    if _is_number(least := rules.get("exclusiveMinimum")) and value <= least:
        yield f"must be more than {least}"
    if _is_number(most := rules.get("maximum")) and value > most:
        yield f"must be at most {most}"
    if _is_number(most := rules.get("exclusiveMaximum")) and value >= most:
        yield f"must be less than {most}"


def _size(size: Any, rules: Mapping[str, Any], word: str, what: str) -> Iterator[str]:
    if _is_number(least := rules.get(f"min{word}")) and size < least:
        yield f"must have at least {least} {what}"
    if _is_number(most := rules.get(f"max{word}")) and size > most:
        yield f"must have at most {most} {what}"


def _same(value: Any, other: Any) -> bool:
    """Return whether two are the same JSON; Python holds True for 1."""
    if _is_number(value) or _is_number(other):
        return _is_number(value) and _is_number(other) and value == other
    return type(value) is type(other) and value == other


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return cast("list[Any]", given) if isinstance(given, list) else [given]


def _mapping(given: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
