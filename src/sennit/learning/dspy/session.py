"""DSPy session: a module whose calls are turns of a conversation.

The predictors of the wrapped program are sent the history without any change to the program. The
session is a `dspy.Module` with the program's predictors, so optimizers compile it like any other.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, SupportsIndex, Unpack, cast

from sennit.errors import InvalidTypeError, ValidationError, listed, short_repr
from sennit.learning.dspy.call import SessionCall
from sennit.learning.dspy.call_lock import LockMode
from sennit.learning.dspy.dspy_imports import Module, dspy
from sennit.learning.dspy.examples import (
    FieldTypes,
    Judge,
    example_of,
    filter_by_score,
    hidden_outputs,
)
from sennit.learning.dspy.history import (
    HistoryEntry,
    HistorySnapshot,
    Turn,
    format_ledger,
    parse_history,
)
from sennit.learning.dspy.modules import (
    CompileGuard,
    accepts_argument,
    bind_arguments,
    copy_module,
    history_field_of,
    prediction_fields,
    without_settings,
)
from sennit.learning.dspy.node_memory import SHARED, NodeMemory
from sennit.learning.dspy.options import (
    BeforeTurn,
    ChildConfig,
    Consolidator,
    CopyMode,
    ExampleOptions,
    HistoryPolicy,
    Isolation,
    Lifespan,
    LoadKeywords,
    MemoryPlan,
    OnMetricError,
    OnTurn,
    Options,
    SessionKeywords,
    parse_field_names,
)
from sennit.learning.dspy.predictor_hook import (
    attach_history,
    call_context,
    current_call,
    signature_fields,
)
from sennit.learning.dspy.reducers import HistoryReducer, parse_reducers
from sennit.learning.dspy.state import SessionState
from sennit.learning.dspy.state_file import is_saved_session, read_file, write_file
from sennit.learning.dspy.turn_log import TurnLog
from sennit.learning.labels import Label, label_many
from sennit.sessions.client import ClientCore

_log = logging.getLogger(__name__)
_STATES_SETTING = "sennit_states"


def _option(name: str, doc: str) -> Any:
    """Return a read-only attribute for an option of a session."""
    return property(lambda session: getattr(session._options, name), doc=doc)


class Session(Module):  # pyright: ignore[reportUntypedBaseClass]
    """A program whose calls are turns of one conversation.

    session = Session(dspy.Predict("question -> answer"))
    session(question="Name a knot")
    session(question="Another?")  # is sent the first turn
    """

    def __init__(
        self,
        module: Any,
        history_field: str = "history",
        max_turns: int | None = None,
        exclude_fields: set[str] | None = None,
        history_input_fields: set[str] | None = None,
        initial_history: object = None,
        history_policy: HistoryPolicy = "override",
        on_metric_error: OnMetricError = "zero",
        strict_history_annotation: bool = False,
        lock: LockMode = "none",
        *,
        input_field_override: set[str] | None = None,
        max_stored_turns: int | None = None,
        copy_mode: CopyMode = "deep",
        on_turn: OnTurn | None = None,
        before_turn: BeforeTurn | None = None,
        history_reducer: HistoryReducer | Sequence[HistoryReducer] | None = None,
        store: ClientCore[Any] | None = None,
        key: str | None = None,
        branch: str | None = None,
        memory: MemoryPlan | None = None,
    ) -> None:
        """Wrap a copy of a program, whose predictors are sent the turns as history.

        A call is sent the last `max_turns` history entries (0 for none), without `exclude_fields`,
        and of the inputs only `history_input_fields`. `history_policy` is the effect of a history
        passed to a call: "override" records no turn, "use_if_provided" records the turn,
        "replace_session" starts over with that history. With `store` and `key` the turns are stored
        there, on the branch "main" unless `branch` is given, and a stored conversation continues.
        With `memory` each predictor has a history of its own; see `with_memory`. A
        `history_reducer`, or several in order, shortens what each predictor is sent; `before_turn`
        is called before each call and may return other inputs.
        Raises ValidationError for an invalid option and for an option passed under both its names,
        InvalidTypeError if `module` is not a dspy.Module.
        """
        super().__init__()  # pyright: ignore
        if history_input_fields is not None and input_field_override is not None:
            raise ValidationError(
                "history_input_fields and input_field_override are two names for one option; "
                f"pass only one, got {short_repr(history_input_fields)} and "
                f"{short_repr(input_field_override)}."
            )
        only = history_input_fields if input_field_override is None else input_field_override
        options = Options(
            history_field=history_field,
            max_turns=max_turns,
            max_stored_turns=max_stored_turns,
            exclude_fields=parse_field_names("exclude_fields", exclude_fields or ()),
            history_input_fields=(
                None if only is None else parse_field_names("history_input_fields", only)
            ),
            history_policy=history_policy,
            on_metric_error=on_metric_error,
            strict_history_annotation=strict_history_annotation,
            lock=lock,
            copy_mode=copy_mode,
            on_turn=on_turn,
            before_turn=before_turn,
            reducers=parse_reducers(history_reducer),
            memory=memory,
        )
        self.__dict__.update(
            _options=options, _requested_field=history_field, _compile_guard=CompileGuard()
        )
        # Without a copy, other sessions may use the same program.
        self.__dict__["_is_shared"] = copy_mode == "none"
        self._wrap_module(module, stacklevel=4)  # one frame is DSPy's metaclass
        options = self._options
        initial = [] if initial_history is None else parse_history(initial_history)
        initial = [options.copy_values(entry) for entry in initial]
        state = SessionState.kept(store, key, branch, options)
        if initial and not state.log.turns and not state.log.initial:
            self._warn_of_unsent(initial)
            state.begin(initial)
        self.__dict__["_state"] = state

    def _wrap_module(self, module: Any, *, stacklevel: int) -> None:
        if not isinstance(module, Module):
            raise InvalidTypeError(f"A session wraps a dspy.Module, got {short_repr(module)}.")
        options: Options = self._options
        requested: str = self._requested_field
        field = history_field_of(module, requested)
        if field != requested:
            warnings.warn(
                f"{type(module).__name__} takes its history as {field!r}, not {requested!r}; "
                f"the session uses {field!r}. Pass history_field={field!r} to avoid this warning.",
                stacklevel=stacklevel,
            )
        if "forward" in vars(module):
            _log.warning(
                "%s has `forward` set on the instance, as KNNFewShot does; it may call predictors "
                "that do not belong to the session and are sent no history.",
                type(module).__name__,
            )
        program = copy_module(module, options.copy_mode)
        attach_history(program, field, strict=options.strict_history_annotation)
        self.module = program
        self.__dict__["_options"] = replace(options, history_field=field)
        self.__dict__["_takes_history"] = accepts_argument(program, field)

    def _warn_of_unsent(self, messages: Sequence[HistoryEntry]) -> None:
        """Log the number of history entries that no predictor of the program will be sent."""
        signatures = [predictor.signature for predictor in self.module.predictors()]
        outputs = {name for signature in signatures for name in signature.output_fields}
        unsent = sum(outputs.isdisjoint(message) for message in messages)
        if unsent and outputs and not self._takes_history:
            _log.warning(
                "%d of %d turns have none of the program's outputs %s, so no model is sent them.",
                unsent,
                len(messages),
                sorted(outputs),
            )

    history_field: str = _option(
        "history_field",
        "The history field: the program's own, or else the one passed.",
    )
    max_turns: int | None = _option(
        "max_turns", "The maximum number of history entries that a call is sent; None for all."
    )
    max_stored_turns: int | None = _option(
        "max_stored_turns", "The maximum number of turns held in memory; None for all."
    )
    exclude_fields: frozenset[str] = _option(
        "exclude_fields", "The fields that are left out of the history."
    )
    history_input_fields: frozenset[str] | None = _option(
        "history_input_fields", "The inputs that are part of the history; None for all."
    )
    copy_mode: CopyMode = _option("copy_mode", "The copy mode of the program and its values.")
    history_policy: HistoryPolicy = _option(
        "history_policy", "The effect of a history passed to a call."
    )
    on_metric_error: OnMetricError = _option(
        "on_metric_error", "The effect of a metric that raises."
    )
    strict_history_annotation: bool = _option(
        "strict_history_annotation",
        "True if a history field that is not a dspy.History raises ValidationError.",
    )
    lock: LockMode = _option("lock", "The lock mode: which calls exclude each other.")
    on_turn: OnTurn | None = _option("on_turn", "The function that is called with each new turn.")
    before_turn: BeforeTurn | None = _option(
        "before_turn", "The function that is called before each call."
    )
    history_reducer: tuple[HistoryReducer, ...] = _option(
        "reducers", "The functions that shorten the history."
    )

    def __repr__(self) -> str:
        program = type(self.module).__name__
        return f"Session({program}, turns={len(self)}, history_field={self.history_field!r})"

    @property
    def state(self) -> SessionState:
        """The state with the turns: the one bound by `use_state`, or else the session's own."""
        bound: Mapping[int, SessionState] = dspy.settings.get(_STATES_SETTING) or {}
        own: SessionState = self.__dict__["_state"]
        return bound.get(id(self), own)

    def new_state(self) -> SessionState:
        """Return an empty conversation with the options and the initial history of this session."""
        state = SessionState.of(TurnLog(self._options), self._options.lock)
        own: SessionState = self.__dict__["_state"]
        if own.log.initial:
            state.begin([dict(entry) for entry in own.log.initial])
        return state

    def use_state(self, state: SessionState) -> StateBinding:
        """Bind another conversation inside a `with` or `async with` block.

        Other tasks and threads keep theirs; DSPy passes the binding on to its worker threads.
        Sessions nested in the program use conversations that belong to the state instead of their
        own.
        """
        return StateBinding(self._bind(state))

    @contextmanager
    def _bind(self, state: SessionState) -> Generator[SessionState]:
        inner = [(session, state.inside(name)) for name, session in self._inner_sessions()]
        bindings = [(self, state), *inner]
        for session, session_state in bindings:
            session.__dict__["_is_shared"] = True
            session_state.adopt(session._options)
        bound: Mapping[int, SessionState] = dspy.settings.get(_STATES_SETTING) or {}
        new_bound = {id(session): session_state for session, session_state in bindings}
        with dspy.context(**{_STATES_SETTING: {**bound, **new_bound}}):
            yield state

    def _nested_logs(self) -> dict[str, TurnLog]:
        inner = self._inner_sessions()
        return {name.removeprefix("self."): session.state.log for name, session in inner}

    def _inner_sessions(self) -> list[tuple[str, Session]]:
        return list(self.module.named_sub_modules(Session))

    @property
    def turns(self) -> list[Turn]:
        """The turns, oldest first."""
        return self.state.turns

    @property
    def session_history(self) -> Any:
        """The history that the next call will be sent, as a dspy.History."""
        return HistorySnapshot.of(self.state.log.span())

    @property
    def initial_history(self) -> list[HistoryEntry]:
        """The initial history of the conversation."""
        return self.state.initial_history

    def __len__(self) -> int:
        return len(self.state.log.turns)

    def __bool__(self) -> bool:
        return True  # even without turns

    def forward(self, *args: Any, **inputs: Any) -> Any:
        """Call the program as the next turn."""
        call = self._create_call(self._prepared(bind_arguments(self.module, args, inputs)))
        with call.lock.hold(), call_context(call.begin()), call.attempt():
            prediction = self.module(**call.arguments)
            self._record_turn(call, prediction)
            self._notify(call)
        return prediction

    async def aforward(self, *args: Any, **inputs: Any) -> Any:
        """Call the program as the next turn, without blocking the event loop on the store."""
        prepared = self._prepared(bind_arguments(self.module, args, inputs))
        call = await self.state.aside(self._create_call, prepared)
        async with call.lock.hold_async():
            with call_context(await call.run_off_loop(call.begin)):
                async with call.async_attempt():
                    prediction = await self.module.acall(**call.arguments)
                    try:
                        await call.run_off_loop(self._record_turn, call, prediction)
                    finally:
                        self._notify(call)  # a turn is recorded even if the caller was cancelled
        return prediction

    def _prepared(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs of a call as `before_turn` changes them."""
        options: Options = self._options
        changed = None if options.before_turn is None else options.before_turn(self, dict(inputs))
        if changed is not None and not isinstance(cast("Any", changed), Mapping):
            raise InvalidTypeError(
                f"before_turn must return the inputs as a dict, or None to leave them as they are, "
                f"got {short_repr(changed)}."
            )
        return inputs if changed is None else dict(changed)

    def _create_call(self, inputs: dict[str, Any]) -> SessionCall:
        options: Options = self._options
        state = self.state
        field, plan = options.history_field, options.memory
        history = inputs.pop(field, None)
        explicit = None if history is None else parse_history(history)
        if explicit:
            self._warn_of_unsent(explicit)
        overridden = explicit is not None and options.history_policy == "override"
        records_turn = not (overridden or self._compile_guard.is_active)
        replaces = explicit is not None and options.history_policy == "replace_session"
        memory = NodeMemory(state.nodes, plan, replaces=replaces) if plan and records_turn else None
        return SessionCall(
            program=self.module,
            state=state,
            inputs=inputs,
            explicit_history=explicit,
            records_turn=records_turn,
            parent=current_call(),
            history_argument=field if self._takes_history else None,
            is_exclusive=not self._is_shared,
            nested_logs=self._nested_logs,
            reducers=options.reducers,
            memory=memory,
        )

    def _record_turn(self, call: SessionCall, prediction: Any) -> None:
        if not call.records_turn:
            return
        options: Options = self._options
        log, outputs = call.state.log, prediction_fields(prediction)
        inputs = without_settings(self.module, call.inputs)
        history = call.explicit_history
        if history is not None:
            history = [log.options.copy_values(entry) for entry in history]
        if history is not None and options.history_policy == "replace_session":
            new_log = TurnLog.of(log.options, history)
            turn = new_log.add(inputs, outputs, **call.turn_details)
            log.catch_up()
            log.replace_with(new_log)
        else:
            turn = log.add(inputs, outputs, call.span, history, **call.turn_details)
        call.turn = turn

    def _notify(self, call: SessionCall) -> None:
        options: Options = self._options
        if options.on_turn is not None and call.turn is not None:
            try:
                options.on_turn(self, call.turn)
            except Exception:
                _log.warning("on_turn failed; the turn was recorded", exc_info=True)

    def add_turn(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Turn:
        """Append a turn without a call; raises InvalidTypeError if a value is not a dict."""
        for name, fields in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(cast("Any", fields), Mapping):
                raise InvalidTypeError(
                    f"{name} must be a dict such as {{'question': '...'}}, got "
                    f"{short_repr(fields)}."
                )
        log = self.state.log
        self._warn_of_unsent([log.options.to_entry(inputs, outputs)])
        return log.add(inputs, outputs, log.current_span())

    def pop_turn(self) -> Turn | None:
        """Undo and return the last turn; None if there is none."""
        return next(iter(self.undo()), None)

    def undo(self, steps: int = 1) -> list[Turn]:
        """Undo up to `steps` turns and their predictor turns; return them, newest first."""
        return self.state.undo(steps)

    def reset(self) -> None:
        """Remove all turns and start over with the initial history."""
        self.state.reset()

    def fork(self) -> Self:
        """Return a session that continues independently from the same turns."""
        state = self.state.fork(with_nodes=self._options.memory is not None)
        return self._copy(state, copy_module(self.module, self._options.copy_mode))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        state = self.state.detached(with_nodes=self._options.memory is not None)
        return self._copy(state, copy_module(self.module, "deep"))

    def __copy__(self) -> Self:
        return self._copy(self.state, self.module)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError(
            "A Session cannot be pickled; use session.save(path) and "
            "Session.load_from(path, module)."
        )

    def copy_with_modules(self) -> Self:
        """Return an independent copy that copies only the modules of the program.

        Called when a program that contains this session is copied with `copy_mode="shallow"`.
        """
        state = self.state.detached(with_nodes=self._options.memory is not None)
        return self._copy(state, copy_module(self.module, "shallow"))

    def reset_copy(self) -> Self:
        """Return a copy without demonstrations and turns, for optimizers."""
        session = cast("Self", super().reset_copy())  # pyright: ignore
        session.reset()
        return session

    def _copy(self, state: SessionState, module: Any) -> Self:
        session: Any = type(self).__new__(type(self))
        session.__dict__.update(self.__dict__)
        # Some optimizers set `forward` on the instance; a copy would call the original's.
        session.__dict__.pop("forward", None)
        session.__dict__.update(_state=state, module=module, _is_shared=module is self.module)
        session.__dict__.update(history=[], callbacks=[*self.callbacks])
        if not self._compile_guard.is_active:
            session.__dict__["_compile_guard"] = CompileGuard()
        return session

    def update_module(self, new_module: Any) -> None:
        """Replace the program, for example by a compiled one."""
        program = new_module.module if isinstance(new_module, Session) else new_module
        self._wrap_module(program, stacklevel=3)
        state, options = self.state, self._options
        state.adopt(options)
        log = state.log
        span = log.span()
        fields = {name: signature_fields(p.signature) for name, p in self.module.named_predictors()}
        if not any(log.entries_for(span, name, fields[name]) for name in fields):
            self._warn_of_unsent(span.messages())

    def score(
        self, metric: Callable[..., Any], gold: Any = None, *, by: str | None = None
    ) -> list[float]:
        """Score each turn with a metric; store the scores with the turns and as labels.

        A turn is compared with itself, with `gold`, or with its own example if `gold` is a list.
        Raises ValidationError for a list of another length.
        """
        log, judge = self.state.log, self._judge(metric)
        session = log.session  # this writes all turns to the branch, so they have ids
        turns = list(log.turns)
        golds = cast("list[Any]", gold) if isinstance(gold, list) else [gold] * len(turns)
        if len(golds) != len(turns):
            raise ValidationError(
                f"gold must be one example, or a list with one for each of the {len(turns)} turns, "
                f"got {len(golds)}."
            )
        scores = [judge.score(turn, expected) for turn, expected in zip(turns, golds, strict=True)]
        name = by or judge.name
        scored = [(turn.message, score) for turn, score in zip(turns, scores, strict=True)]
        label_many(session, [Label.of(uid, score, by=name) for uid, score in scored if uid])
        log.set_scores({id(turn): score for turn, score in zip(turns, scores, strict=True)})
        return scores

    def _judge(self, metric: Callable[..., Any]) -> Judge:
        options = self._options
        field, types = options.history_field, FieldTypes(self.module)
        return Judge(metric, field, types, options.on_metric_error == "zero")

    def to_examples(
        self,
        *,
        metric: Callable[..., Any] | None = None,
        min_score: float | None = None,
        include_history: bool = True,
        strict_trajectory: bool = False,
        require_outputs: bool = True,
    ) -> list[Any]:
        """Return each turn as a dspy.Example; its history is read lazily.

        With `metric` the turns are scored first, as by `score`. With `min_score`, turns with a
        lower score or none are left out, and with `strict_trajectory` all turns after one too.
        """
        if metric is not None:
            self.score(metric)
        complete = [turn for turn in self.turns if turn.outputs or not require_outputs]
        chosen = filter_by_score(complete, min_score, strict=strict_trajectory)
        if hidden := hidden_outputs(chosen):
            _log.warning(
                "The outputs %s are not in the examples, because inputs have the same names.",
                sorted(hidden),
            )
        field = self._options.history_field if include_history else None
        types = FieldTypes(self.module)
        return [example_of(turn, field, types) for turn in chosen]

    to_trainset = to_examples

    @staticmethod
    def merge_examples(*sessions: Session, **options: Unpack[ExampleOptions]) -> list[Any]:
        """Return the examples of several sessions in order; options as in `to_examples`."""
        return [example for session in sessions for example in session.to_examples(**options)]

    def save_state(self) -> dict[str, Any]:
        """Return the conversation and the history options as plain data."""
        return self.state.to_dict(self._options)

    def save(self, path: str | Path) -> None:
        """Write `save_state` to a file; it does not include the program."""
        write_file(path, self.save_state())

    def load(self, path: str | Path, *args: Any, **options: Any) -> None:
        """Load the state of the program like any dspy.Module; the turns do not change.

        Raises ValidationError for a conversation written by `save`.
        """
        if is_saved_session(path):
            raise ValidationError(
                f"{str(path)!r} contains a conversation, not a program; load it with "
                f"Session.load_from(path, module). Save a program with session.module.save."
            )
        super().load(path, *args, **options)  # pyright: ignore

    @classmethod
    def load_from(cls, path: str | Path, module: Any, **options: Unpack[LoadKeywords]) -> Self:
        """Load a saved session around a program; `options` override the saved ones.

        A consolidator is not saved; pass it again.
        """
        saved = read_file(path)
        loaded = cls(module, **_merge_options(saved.options, options))
        session = cast("Session", loaded)
        node_names = {SHARED, *(name for name, _ in session.module.named_predictors())}
        if unknown := sorted(saved.nodes.keys() - node_names):
            _log.warning(
                "%s contains turns of %s, which is not a predictor of this program.",
                path,
                unknown,
            )
        session.state.fill(saved)
        return loaded


def _merge_options(saved: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return saved options with overrides, which may use either name of an option."""
    replaced = {"history_input_fields"} if "input_field_override" in overrides else set[str]()
    return {**{name: value for name, value in saved.items() if name not in replaced}, **overrides}


def sessionify(module: Any, **options: Unpack[SessionKeywords]) -> Session:
    """Return `Session(module, **options)`."""
    return Session(module, **options)


class StateBinding(AbstractContextManager[SessionState], AbstractAsyncContextManager[SessionState]):
    """A conversation bound to a session, for `with` and `async with`."""

    def __init__(self, binding: AbstractContextManager[SessionState]) -> None:
        self._binding = binding

    def __enter__(self) -> SessionState:
        return self._binding.__enter__()

    def __exit__(self, *error: Any) -> bool | None:
        return self._binding.__exit__(*error)

    async def __aenter__(self) -> SessionState:
        return self._binding.__enter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return self._binding.__exit__(*error)


def with_memory(
    module: Any,
    *,
    recursive: bool = True,
    isolation: Isolation = "isolated",
    lifespan: Lifespan = "persistent",
    consolidator: Consolidator | None = None,
    child_configs: Mapping[str, ChildConfig] | None = None,
    exclude: Iterable[str] | None = None,
    **options: Unpack[SessionKeywords],
) -> Session:
    """Return a session in which each predictor of the program has a history of its own.

    The history belongs to one predictor ("isolated") or to all of them ("shared"); it lasts
    ("persistent"), ends with each call ("episodic") or is not recorded ("stateless"). A
    `consolidator` is called at the end of each call with the predictor's memory, the turns of the
    call and the predictor's name; it returns the new memory, which is added to the predictor's
    instructions. It may be a DSPy program from `past_memory` and `episode_transcript` to
    `updated_memory` instead. `child_configs` has other values of these three for single predictors,
    or all below a module, by dotted name; those in `exclude` are sent no history. Without
    `recursive` only the program has a history. `options` are those of Session. Raises
    ValidationError for a name that is not in the program.
    """
    if not recursive:
        return Session(module, **options)
    defaults: ChildConfig = {
        "isolation": isolation,
        "lifespan": lifespan,
        "consolidator": consolidator,
    }
    excluded = parse_field_names("exclude", exclude or ())
    children = {
        name: _memory_plan({**defaults, **config}) for name, config in (child_configs or {}).items()
    }
    _check_nodes(module, excluded | children.keys())
    plan = replace(_memory_plan(defaults), children=children, exclude=excluded)
    return Session(module, memory=plan, **options)


def _memory_plan(config: ChildConfig) -> MemoryPlan:
    if unknown := config.keys() - {"isolation", "lifespan", "consolidator"}:
        raise ValidationError(
            f"A child config has isolation, lifespan and consolidator, got {listed(unknown)}."
        )
    consolidator = config.get("consolidator")
    if isinstance(consolidator, Module):
        consolidator = _ConsolidatorProgram(consolidator)
    return MemoryPlan(
        config.get("isolation", "isolated"), config.get("lifespan", "persistent"), consolidator
    )


def _check_nodes(module: Any, names: Iterable[str]) -> None:
    predictors = [name for name, _ in module.named_predictors()]
    for name in names:
        if not any(f"{predictor}.".startswith(f"{name}.") for predictor in predictors):
            raise ValidationError(
                f"The program has no predictor at or below {name!r}; there are: "
                f"{listed(predictors)}."
            )


class _ConsolidatorProgram:
    """A DSPy program as a consolidator."""

    def __init__(self, program: Any) -> None:
        self._program = program

    def __call__(self, memory: str, episode: list[Turn], _node: str) -> str:
        prediction = self._program(past_memory=memory, episode_transcript=format_ledger(episode))
        return str(prediction.updated_memory)
