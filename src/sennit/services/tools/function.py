"""A typed Python function as a tool backend.

The parameters become a pydantic model once, when the tool is created, so a parameter that cannot be
offered to a language model (no type, `*args`, a type without a JSON schema) raises then. The fields
of the pydantic model have generated names, with the parameters' names as aliases, so a parameter
may have any name, such as `json` or `_x`. A model neither sees nor changes arguments bound by a
partial.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast, get_args, get_origin

from sennit.errors import InvalidTypeError, ToolError, ValidationError, short_repr
from sennit.messages.codec import dumps
from sennit.messages.json_values import plain, plain_dict
from sennit.messages.typescript import ToolSchema
from sennit.services.tools.backend import ToolBackend, ToolContext

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic import ValidationError as Invalid

    from sennit.services.tools.docstring import Docstring

Function: TypeAlias = Callable[..., Any]
_T = TypeVar("_T")
_MAX_SHOWN_ERRORS = 10


class FunctionBackend(ToolBackend):
    """A function, a method, a callable object or a partial of these; sync or async."""

    def __init__(self, function: Function, name: str | None = None) -> None:
        """Raises InvalidTypeError, naming the parameter, if it cannot be offered to a model."""
        from sennit.services.tools.docstring import parse

        self._function = function
        self._name = name or _name_of(function)
        _check_kind(function, self._name)
        doc = parse(_doc_of(function))
        self._parameters = _parameters_of(function, self._name)
        self._arguments = _model_of(self._parameters, doc, self._name)
        self._schema = ToolSchema(self._name, doc.description, self._schema_of_parameters())

    @property
    def schema(self) -> ToolSchema:
        """The schema, from the signature and the docstring."""
        return self._schema

    @property
    def positional_names(self) -> tuple[str, ...]:
        """The parameters that may be passed by position, in order."""
        return tuple(parameter.name for parameter in self._parameters if not parameter.keyword_only)

    def _schema_of_parameters(self) -> dict[str, Any]:
        from pydantic import PydanticUserError

        try:
            schema = self._arguments.model_json_schema(schema_generator=_schema_generator())
        except PydanticUserError as error:
            raise _schema_error(self._parameters, self._name, error) from error
        schema.pop("title", None)
        return plain_dict(schema, f"the schema of tool {self._name!r}")

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated arguments by parameter name; raises ToolError."""
        from pydantic import ValidationError as Invalid

        try:
            model = self._arguments.model_validate_json(dumps(arguments))
        except Invalid as error:
            raise ToolError(self._error_message(error)) from error
        return {
            parameter.name: parameter.value_in(model)
            for parameter in self._parameters
            if not parameter.is_context
        }

    def _error_message(self, error: Invalid) -> str:
        details = error.errors(include_url=False, include_input=False, include_context=False)
        names = [parameter.name for parameter in self._parameters if not parameter.is_context]
        problems = [
            _describe_error(cast("dict[str, Any]", detail), names)
            for detail in details[:_MAX_SHOWN_ERRORS]
        ]
        if len(details) > _MAX_SHOWN_ERRORS:
            problems.append(f"and {len(details) - _MAX_SHOWN_ERRORS} more")
        return "; ".join(problems)

    async def call(self, bound: Mapping[str, Any], context: ToolContext) -> Any:
        """Call the function: on the event loop if it is async, else in a thread."""
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for parameter in self._parameters:
            value = context if parameter.is_context else bound[parameter.name]
            if parameter.positional:
                positional.append(value)
            else:
                keywords[parameter.name] = value
        call = partial(self._function, *positional, **keywords)
        result = call() if _is_async(self._function) else await _in_daemon_thread(call)
        return await result if inspect.isawaitable(result) else result


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter of the function, and its field in the pydantic model."""

    name: str
    field: str
    """The field's name in the pydantic model."""
    annotation: Any
    default: Any
    positional: bool
    keyword_only: bool

    @property
    def is_context(self) -> bool:
        return self.annotation is ToolContext or ToolContext in get_args(self.annotation)

    @property
    def own_default(self) -> bool:
        """True if the signature has a default value that is not a pydantic Field."""
        return self.default is not Parameter.empty and not _is_field(self.default)

    def value_in(self, model: BaseModel) -> Any:
        if self.own_default and self.field not in model.model_fields_set:
            return self.default
        return getattr(model, self.field)


def _innermost(function: Function) -> Function:
    while isinstance(function, partial):
        function = cast("partial[Any]", function).func
    return function


def _name_of(function: Function) -> str:
    inner = _innermost(function)
    return str(getattr(inner, "__name__", type(inner).__name__))


def _doc_of(function: Function) -> str | None:
    inner = _innermost(function)
    if inspect.isroutine(inner):
        return inspect.getdoc(inner)
    return inspect.getdoc(type(inner).__call__) or inspect.getdoc(inner)


def _check_kind(function: Any, name: str) -> None:
    inner = _innermost(function)
    if isinstance(inner, type) or not callable(inner):
        raise InvalidTypeError(
            f"A tool is made from a typed function, got {short_repr(function)}; for a class, pass "
            f"one of its methods or a callable instance."
        )
    code = inner if inspect.isroutine(inner) else type(inner).__call__
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise InvalidTypeError(
            f"Tool {name!r} is a generator, and a call has one result; return a list instead."
        )


def _is_async(function: Function) -> bool:
    inner = _innermost(function)
    return inspect.iscoroutinefunction(inner) or (
        not inspect.isroutine(inner) and inspect.iscoroutinefunction(type(inner).__call__)
    )


def _parameters_of(function: Function, name: str) -> list[_Parameter]:
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise InvalidTypeError(
            f"Tool {name!r} has a type that cannot be found: {error}; define or import it in the "
            f"module itself, not inside a function or under TYPE_CHECKING."
        ) from error
    except (ValueError, TypeError, SyntaxError, AttributeError) as error:
        raise InvalidTypeError(
            f"The signature of tool {name!r} cannot be read: {error}; "
            f"wrap it in a function with types."
        ) from error
    bound = _bound_names(function)
    return [
        _parameter(parameter, index, name)
        for index, parameter in enumerate(signature.parameters.values())
        if parameter.name not in bound
    ]


def _bound_names(function: Function) -> set[str]:
    """Return the names of the keyword arguments bound by partials."""
    names: set[str] = set()
    while isinstance(function, partial):
        function = cast("partial[Any]", function)
        names |= set(function.keywords)
        function = function.func
    return names


def _parameter(parameter: Parameter, index: int, tool: str) -> _Parameter:
    if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is Parameter.VAR_POSITIONAL else "**"
        alternative = "a list" if stars == "*" else "a dict"
        raise InvalidTypeError(
            f"Tool {tool!r} takes {stars}{parameter.name}, which no schema can describe; "
            f"name each parameter, or take {alternative} as one of them."
        )
    if parameter.annotation is Parameter.empty:
        raise InvalidTypeError(
            f"Parameter {parameter.name!r} of tool {tool!r} has no type; "
            f"annotate it, for example `{parameter.name}: str`."
        )
    return _Parameter(
        parameter.name,
        f"arg_{index}",
        parameter.annotation,
        parameter.default,
        positional=parameter.kind is Parameter.POSITIONAL_ONLY,
        keyword_only=parameter.kind is Parameter.KEYWORD_ONLY,
    )


def _is_field(value: Any) -> bool:
    # By name, to avoid importing pydantic for functions that do not use Field.
    return type(value).__name__ == "FieldInfo"


def _model_of(parameters: list[_Parameter], doc: Docstring, name: str) -> type[BaseModel]:
    from pydantic import ConfigDict, PydanticUserError, create_model
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

    fields: dict[str, Any] = {
        parameter.field: _field(parameter, doc.parameters.get(parameter.name, ""))
        for parameter in parameters
        if not parameter.is_context
    }
    config = ConfigDict(extra="forbid", title=name)
    try:
        return create_model(name, __config__=config, **fields)
    except (
        PydanticUserError,
        PydanticSchemaGenerationError,
        PydanticUndefinedAnnotation,
        TypeError,
    ) as error:
        raise _schema_error(parameters, name, error) from error


def _field(parameter: _Parameter, description: str) -> tuple[Any, Any]:
    """Return the type and settings of a field; annotations take precedence over the docstring."""
    from pydantic import Field

    annotation = parameter.annotation
    metadata = [Field(description=description)] if description else []
    if get_origin(annotation) is Annotated:
        annotation, *own_metadata = get_args(annotation)
        metadata = [*metadata, *own_metadata]
    if _is_field(parameter.default):
        metadata.append(parameter.default)
    if metadata:
        annotation = Annotated[(annotation, *metadata)]
    if not parameter.own_default:
        return annotation, Field(alias=parameter.name)
    try:
        json_default = plain(parameter.default, parameter.name)
    except ValidationError:  # not JSON: left out of the schema
        return annotation, Field(alias=parameter.name, default_factory=lambda: None)
    return annotation, Field(alias=parameter.name, default=json_default)


def _schema_error(parameters: list[_Parameter], tool: str, error: Exception) -> InvalidTypeError:
    """Return the error for a type without a JSON schema, naming its parameter."""
    from pydantic import TypeAdapter

    for parameter in parameters:
        try:
            if not parameter.is_context:
                TypeAdapter(parameter.annotation).json_schema()
        except Exception:  # any error means that this parameter has no schema
            return InvalidTypeError(
                f"Parameter {parameter.name!r} of tool {tool!r} has the type "
                f"{short_repr(parameter.annotation)}, which a model cannot write as JSON; use "
                f"plain types, dataclasses or pydantic models, or bind it with functools.partial."
            )
    return InvalidTypeError(f"Tool {tool!r} cannot be described as a JSON schema: {error}")


def _schema_generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class UntitledSchema(GenerateJsonSchema):
        """A schema without field titles, which only repeat the names."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
            return False

    return UntitledSchema


def _describe_error(error: Mapping[str, Any], names: list[str]) -> str:
    loc = cast("tuple[str | int, ...]", error["loc"])
    path = ".".join(map(str, loc)) or "arguments"
    if error["type"] == "extra_forbidden":
        accepted = f"; it takes {', '.join(names) or 'none'}" if len(loc) == 1 else ""
        return f"{path}: there is no such argument{accepted}"
    return f"{path}: {error['msg']}"


async def _in_daemon_thread(call: Callable[[], _T]) -> _T:
    """Run `call` in a thread with the caller's context variables, and return its result.

    If the caller is cancelled, the thread continues and its result is discarded. The executors of
    asyncio join their threads at exit, so a call that hangs would keep the program from ending; a
    daemon thread does not.
    """
    import asyncio  # late: slow to import

    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[_T] | BaseException] = loop.create_future()

    def set_outcome(outcome: tuple[_T] | BaseException) -> None:
        if not future.done():
            future.set_result(outcome)

    def run() -> None:
        try:
            # Errors are also set as a result, since a future rejects StopIteration.
            outcome: tuple[_T] | BaseException = (call(),)
        except BaseException as error:
            outcome = error
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(set_outcome, outcome)
            except RuntimeError:  # the loop was closed meanwhile: no caller is waiting
                return

    Thread(target=copy_context().run, args=(run,), name="sennit-tool", daemon=True).start()
    outcome = await future
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome[0]
