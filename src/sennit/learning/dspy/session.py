"""The DSPy session: a module whose calls are turns of a conversation.

The program inside hears the conversation without knowing of it. The session is a `dspy.Module`
whose predictors are those of the program, so optimisers compile it like any other.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, SupportsIndex, cast

from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.learning.dspy.call import SessionCall
from sennit.learning.dspy.call_lock import LockMode
from sennit.learning.dspy.compile_guard import CompileGuard
from sennit.learning.dspy.dspy_imports import Module, dspy
from sennit.learning.dspy.examples import Judge, example_of, good_enough, lost_labels
from sennit.learning.dspy.history import HistorySnapshot, Told, history_from
from sennit.learning.dspy.history_options import CopyMode, HistoryOptions
from sennit.learning.dspy.modules import (
    by_name,
    copied,
    fields_asked,
    fields_of,
    history_field_of,
    takes,
)
from sennit.learning.dspy.node_memory import (
    SHARED,
    Consolidator,
    Lifetime,
    MemoryPlan,
    NodeMemory,
    Scope,
)
from sennit.learning.dspy.options import (
    HistoryPolicy,
    OnMetricError,
    OnTurn,
    Options,
    field_names,
    require,
)
from sennit.learning.dspy.predictor_hook import CallContext, current_call, fields_in, wire
from sennit.learning.dspy.state import SessionState
from sennit.learning.dspy.state_file import SavedState, is_saved, read_file, write_file
from sennit.learning.dspy.turn import Turn
from sennit.learning.dspy.turn_log import TurnLog
from sennit.learning.dspy.types import FieldTypes
from sennit.learning.labels import Label, label_many
from sennit.sessions.client import ClientCore

_log = logging.getLogger(__name__)
_STATES = "sennit_states"


class Session(Module):  # pyright: ignore[reportUntypedBaseClass]
    """A program whose calls are turns of one conversation.

    session = Session(dspy.Predict("question -> answer"))
    session(question="Name a knot")
    session(question="Another?")  # hears the first turn
    """

    def __init__(
        self,
        module: Any,
        history_field: str = "history",
        max_turns: int | None = None,
        exclude_fields: set[str] | None = None,
        history_input_fields: set[str] | None = None,
        initial_history: Any = None,
        history_policy: HistoryPolicy = "override",
        on_metric_error: OnMetricError = "zero",
        strict_history_annotation: bool = False,
        lock: LockMode = "none",
        *,
        input_field_override: set[str] | None = None,
        max_stored_turns: int | None = None,
        copy_mode: CopyMode = "deep",
        on_turn: OnTurn | None = None,
        store: ClientCore[Any] | None = None,
        key: str | None = None,
        branch: str | None = None,
        memory: MemoryPlan | None = None,
    ) -> None:
        """Wrap a program; its own copy of it hears the turns.

        `max_turns` messages of the history reach a call (0: none), without `exclude_fields` and of
        the inputs only `history_input_fields`. `history_policy` says what an explicit history does:
        "override" answers it and keeps nothing, "use_if_provided" keeps the turn, "replace_session"
        begins anew with it. With `store` and `key` the turns are kept there, on the branch "main"
        unless another is named, and gone on with. With `memory` each predictor has a past of its
        own; see `with_memory`.
        Raises ValidationError for an unknown word and for an option given under both its names,
        InvalidTypeError for what is no dspy.Module.
        """
        super().__init__()  # pyright: ignore
        if history_input_fields is not None and input_field_override is not None:
            raise ValidationError(
                "history_input_fields and input_field_override are two names of one option; "
                f"give one of them, got {shown(history_input_fields)} and "
                f"{shown(input_field_override)}."
            )
        only = history_input_fields if input_field_override is None else input_field_override
        telling = HistoryOptions(
            history_field=history_field,
            exclude=field_names("exclude_fields", exclude_fields or ()),
            only_inputs=None if only is None else field_names("history_input_fields", only),
            max_turns=max_turns,
            max_stored=max_stored_turns,
            copies=copy_mode,
        )
        options = Options(
            telling=telling,
            policy=history_policy,
            on_metric_error=on_metric_error,
            strict=strict_history_annotation,
            lock=lock,
            on_turn=on_turn,
            plan=memory,
        )
        self.__dict__.update(_options=options, _wanted=history_field, _rehearsal=CompileGuard())
        # A program that is not copied may be that of other sessions too.
        self.__dict__["_serves_many"] = copy_mode == "none"
        self._take_in(module, stacklevel=4)  # DSPy's metaclass stands between
        telling = self._options.telling
        began = [] if initial_history is None else history_from(initial_history)
        began = [telling.kept(one) for one in began]
        state = SessionState.kept(store, key, branch, telling)
        state.adopt(telling, lock)
        if began and not state.log.turns and not state.log.initial:
            self._warn_of_unheard(began)
            state.begin(began)
        self.__dict__["_state"] = state

    def _take_in(self, module: Any, *, stacklevel: int) -> None:
        if not isinstance(module, Module):
            raise InvalidTypeError(f"A session wraps a dspy.Module, got {shown(module)}.")
        options: Options = self._options
        wanted: str = self._wanted
        field = history_field_of(module, wanted)
        if field != wanted:
            warnings.warn(
                f"{type(module).__name__} takes its history as {field!r}, not {wanted!r}; "
                f"the session uses {field!r}. Say so with history_field={field!r}.",
                stacklevel=stacklevel,
            )
        if "forward" in vars(module):
            _log.warning(
                "%s has a `forward` of its own, such as KNNFewShot makes, which may ask other "
                "predictors than those of the session; these are sent no history.",
                type(module).__name__,
            )
        own = copied(module, options.telling.copies)
        wire(own, field, strict=options.strict)
        self.module = own
        telling = replace(options.telling, history_field=field)
        self.__dict__["_options"] = replace(options, telling=telling)
        self.__dict__["_tells"] = takes(own, field)

    def _warn_of_unheard(self, messages: Sequence[Told]) -> None:
        """Log how many messages of a history no predictor of the program will be sent."""
        outputs = {name for one in self.module.predictors() for name in one.signature.output_fields}
        lost = sum(outputs.isdisjoint(one) for one in messages)
        if lost and outputs and not self._tells:
            _log.warning(
                "%d of %d turns have none of the program's outputs %s, so no model is sent them.",
                lost,
                len(messages),
                sorted(outputs),
            )

    @property
    def history_field(self) -> str:
        """The field that holds the history: the one asked for, or the one the program has."""
        return self._options.telling.history_field

    @property
    def max_turns(self) -> int | None:
        """The number of history turns that a call is sent; None for all."""
        return self._options.telling.max_turns

    @property
    def max_stored_turns(self) -> int | None:
        """The number of turns held in memory; None for all."""
        return self._options.telling.max_stored

    @property
    def exclude_fields(self) -> set[str]:
        """The fields that do not become history."""
        return set(self._options.telling.exclude)

    @property
    def history_input_fields(self) -> set[str] | None:
        """The inputs that become history; None for all."""
        only = self._options.telling.only_inputs
        return None if only is None else set(only)

    @property
    def copy_mode(self) -> CopyMode:
        """The copy mode of the program and its values."""
        return self._options.telling.copies

    @property
    def history_policy(self) -> HistoryPolicy:
        """The effect of an explicit history."""
        return self._options.policy

    @property
    def on_metric_error(self) -> OnMetricError:
        """The effect of a metric that fails."""
        return self._options.on_metric_error

    @property
    def strict_history_annotation(self) -> bool:
        """True if a history field of another type is refused."""
        return self._options.strict

    @property
    def lock(self) -> LockMode:
        """The lock mode: which calls exclude each other."""
        return self._options.lock

    @property
    def on_turn(self) -> OnTurn | None:
        """The function that is called with each new turn."""
        return self._options.on_turn

    def __repr__(self) -> str:
        program = type(self.module).__name__
        return f"Session({program}, turns={len(self)}, history_field={self.history_field!r})"

    @property
    def state(self) -> SessionState:
        """The state that holds the turns: the session's own, or the one bound here."""
        bound: Mapping[int, SessionState] = dspy.settings.get(_STATES) or {}
        own: SessionState = self.__dict__["_state"]
        return bound.get(id(self), own)

    @contextmanager
    def use_state(self, state: SessionState) -> Generator[SessionState]:
        """Speak on another conversation inside the block; others may use theirs meanwhile.

        DSPy takes it along into its worker threads. Sessions inside the program speak on
        conversations that belong to the state, not on their own.
        """
        inner = [(one, state.inside(name)) for name, one in self._inner_sessions()]
        found = [(self, state), *inner]
        for one, theirs in found:
            one.__dict__["_serves_many"] = True
            theirs.adopt(one._options.telling, one._options.lock)
        bound: Mapping[int, SessionState] = dspy.settings.get(_STATES) or {}
        binding = {id(one): theirs for one, theirs in found}
        with dspy.context(**{_STATES: {**bound, **binding}}):
            yield state

    def _inner_sessions(self) -> list[tuple[str, Session]]:
        return list(self.module.named_sub_modules(Session))

    @property
    def turns(self) -> list[Turn]:
        """The turns, the oldest first."""
        return self.state.turns

    @property
    def session_history(self) -> Any:
        """The history that the next call will get, as a dspy.History."""
        return HistorySnapshot.of(self.state.log.span())

    @property
    def initial_history(self) -> list[Told]:
        """The history the conversation began with."""
        return self.state.initial_history

    def __len__(self) -> int:
        return len(self.state.log.turns)

    def __bool__(self) -> bool:
        return True  # also before the first turn

    def forward(self, *args: Any, **inputs: Any) -> Any:
        """Call the program as the next turn."""
        call = self._call(by_name(self.module, args, inputs))
        with call.lock.held(), CallContext(call.begun()), call.attempt():
            prediction = self.module(**call.arguments)
            self._keep(call, prediction)
            self._tell(call)
        return prediction

    async def aforward(self, *args: Any, **inputs: Any) -> Any:
        """The same, awaited; the loop does not wait for the store."""
        call = await self.state.aside(self._call, by_name(self.module, args, inputs))
        async with call.lock.aheld():
            with CallContext(await call.aside(call.begun)):
                async with call.awaited_attempt():
                    prediction = await self.module.acall(**call.arguments)
                    try:
                        await call.aside(self._keep, call, prediction)
                    finally:
                        self._tell(call)  # kept though the caller was cancelled, it is told of
        return prediction

    def _call(self, inputs: dict[str, Any]) -> SessionCall:
        options: Options = self._options
        state = self.state
        field, plan = options.telling.history_field, options.plan
        history = inputs.pop(field, None)
        given = None if history is None else history_from(history)
        if given:
            self._warn_of_unheard(given)
        overridden = given is not None and options.policy == "override"
        keeps = not (overridden or self._rehearsal.goes_on)
        anew = given is not None and options.policy == "replace_session"
        return SessionCall(
            program=self.module,
            state=state,
            inputs=inputs,
            given=given,
            keeps=keeps,
            parent=current_call(),
            tell_as=field if self._tells else None,
            alone=not self._serves_many,
            memory=NodeMemory(state.nodes, plan, anew=anew) if plan and keeps else None,
        )

    def _keep(self, call: SessionCall, prediction: Any) -> None:
        if not call.keeps:
            return
        options: Options = self._options
        log, outputs = call.state.log, fields_of(prediction)
        inputs = fields_asked(self.module, call.inputs)
        given = None if call.given is None else [log.telling.kept(one) for one in call.given]
        if given is not None and options.policy == "replace_session":
            replacing = TurnLog.of(log.telling, given)
            turn = replacing.add(inputs, outputs, **call.inside)
            log.catch_up()
            log.become(replacing)
        else:
            turn = log.add(inputs, outputs, call.span, given, **call.inside)
        call.turn = turn

    def _tell(self, call: SessionCall) -> None:
        options: Options = self._options
        if options.on_turn is not None and call.turn is not None:
            try:
                options.on_turn(self, call.turn)
            except Exception:
                _log.warning("on_turn failed; the turn is kept", exc_info=True)

    def add_turn(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Turn:
        """Put a turn at the end that was not called for; InvalidTypeError for what is no dict."""
        for name, given in (("inputs", inputs), ("outputs", outputs)):
            if not isinstance(cast("Any", given), Mapping):
                raise InvalidTypeError(
                    f"{name} is a dict of fields such as {{'question': '...'}}, got {shown(given)}."
                )
        log = self.state.log
        self._warn_of_unheard([log.telling.told(inputs, outputs)])
        return log.add(inputs, outputs, log.caught_up())

    def pop_turn(self) -> Turn | None:
        """Take the last turn back; None if there is none."""
        return next(iter(self.undo()), None)

    def undo(self, steps: int = 1) -> list[Turn]:
        """Take turns back, the last one first, with what nodes said in them; at most all."""
        return self.state.undo(steps)

    def reset(self) -> None:
        """Begin anew with the history it began with."""
        self.state.reset()

    def fork(self) -> Self:
        """A session that goes on from here by itself."""
        state = self.state.fork(with_nodes=self._options.plan is not None)
        return self._copy(state, copied(self.module, self._options.telling.copies))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        state = self.state.detached(with_nodes=self._options.plan is not None)
        return self._copy(state, copied(self.module, "deep"))

    def __copy__(self) -> Self:
        return self._copy(self.state, self.module)

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        raise InvalidTypeError(
            "A Session cannot be pickled: its turns are kept as data, and its program is not a "
            "part of them. Use session.save(path), and Session.load_from(path, module)."
        )

    def copied_modules(self) -> Self:
        """A session with these turns that goes on by itself; of the program only modules are new.

        Called where a program that holds this session is copied with `copy_mode="shallow"`.
        """
        state = self.state.detached(with_nodes=self._options.plan is not None)
        return self._copy(state, copied(self.module, "shallow"))

    def reset_copy(self) -> Self:
        """A copy with no demonstrations and no turns, as optimisers ask for."""
        made = cast("Self", super().reset_copy())  # pyright: ignore
        made.reset()
        return made

    def _copy(self, state: SessionState, module: Any) -> Self:
        made: Any = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        # Some optimisers put a `forward` into the instance, which would be that of this one.
        made.__dict__.pop("forward", None)
        made.__dict__.update(_state=state, module=module, history=[], callbacks=[*self.callbacks])
        made.__dict__["_serves_many"] = module is self.module
        if not self._rehearsal.goes_on:
            made.__dict__["_rehearsal"] = CompileGuard()
        return made

    def update_module(self, new_module: Any) -> None:
        """Go on with another program, such as a compiled one."""
        program = new_module.module if isinstance(new_module, Session) else new_module
        self._take_in(program, stacklevel=3)
        state, options = self.state, self._options
        state.adopt(options.telling, options.lock)
        log = state.log
        span = log.span()
        named = self.module.named_predictors()
        heard = any(log.fitted(span, name, fields_in(one.signature)) for name, one in named)
        if not heard:
            self._warn_of_unheard(span.messages())

    def score(
        self, metric: Callable[..., Any], gold: Any = None, *, by: str | None = None
    ) -> list[float]:
        """Ask a metric about each turn, once; kept as the turns' scores, and as labels.

        A turn is compared with itself, with `gold`, or with its own one in a list of them.
        Raises ValidationError for a list of another length.
        """
        log, judge = self.state.log, self._judge(metric)
        session = log.session  # from here on all turns stand on the branch
        turns = list(log.turns)
        golds = cast("list[Any]", gold) if isinstance(gold, list) else [gold] * len(turns)
        if len(golds) != len(turns):
            raise ValidationError(
                f"gold must be one example, or a list with one for each of the {len(turns)} turns, "
                f"got {len(golds)}."
            )
        scores = [judge.score(turn, one) for turn, one in zip(turns, golds, strict=True)]
        name = by or judge.name
        told = [(turn.message, score) for turn, score in zip(turns, scores, strict=True)]
        label_many(session, [Label.of(one, score, by=name) for one, score in told if one])
        log.judge({id(turn): score for turn, score in zip(turns, scores, strict=True)})
        return scores

    def _judge(self, metric: Callable[..., Any]) -> Judge:
        options = self._options
        field, types = options.telling.history_field, FieldTypes(self.module)
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
        """Each turn as a dspy.Example that stands alone; its history is read when looked at.

        With `metric` the turns are scored first, as by `score`. With `min_score` those scored
        lower, or not at all, are left out, and with `strict_trajectory` all that follow one.
        """
        if metric is not None:
            self.score(metric)
        said = [turn for turn in self.turns if turn.outputs or not require_outputs]
        chosen = good_enough(
            said,
            lambda turn: turn.score,
            min_score,
            strict=strict_trajectory,
        )
        if lost := lost_labels(chosen):
            _log.warning(
                "The outputs %s are not in the examples: inputs have the same names.", sorted(lost)
            )
        field = self._options.telling.history_field if include_history else None
        types = FieldTypes(self.module)
        return [example_of(turn, field, types) for turn in chosen]

    to_trainset = to_examples

    @staticmethod
    def merge_examples(*sessions: Session, **options: Any) -> list[Any]:
        """The examples of several sessions, one after the other; options as in `to_examples`."""
        return [example for one in sessions for example in one.to_examples(**options)]

    def save_state(self) -> dict[str, Any]:
        """The conversation and how it is told, as plain data."""
        return self._saved().written()

    def save(self, path: str | Path) -> None:
        """Write `save_state` to a file; the program is not part of it."""
        write_file(path, self._saved())

    def _saved(self) -> SavedState:
        plan = self._options.plan
        memory = (
            {} if plan is None else {"memory": {"scope": plan.scope, "lifetime": plan.lifetime}}
        )
        return self.state.saved(history_policy=self._options.policy, **memory)

    def load(self, path: str | Path, *args: Any, **options: Any) -> None:
        """Read the state of the program, as any dspy.Module does; no turn is changed.

        Raises ValidationError for a conversation that `save` wrote.
        """
        if is_saved(path):
            raise ValidationError(
                f"{str(path)!r} contains a conversation, not a program; load it with "
                f"Session.load_from(path, module). Save a program with session.module.save."
            )
        super().load(path, *args, **options)  # pyright: ignore

    @classmethod
    def load_from(cls, path: str | Path, module: Any, **options: Any) -> Self:
        """The session that was saved, around a program; options replace what was saved.

        A consolidator is not saved.
        """
        saved = read_file(path)
        made = cls(module, **_merged(saved.options, options))
        session = cast("Session", made)
        named = {SHARED, *(name for name, _ in session.module.named_predictors())}
        if unknown := sorted(saved.nodes.keys() - named):
            _log.warning(
                "%s contains turns of %s, which is not a predictor of this program.",
                path,
                unknown,
            )
        session.state.fill(saved)
        return made


def _merged(saved: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a saved session and those given instead, under either name."""
    replaced = {"history_input_fields"} if "input_field_override" in given else set[str]()
    return {**{name: one for name, one in saved.items() if name not in replaced}, **given}


def sessionify(module: Any, **options: Any) -> Session:
    """`Session(module, ...)`."""
    return Session(module, **options)


def with_memory(
    module: Any,
    *,
    scope: Scope = "isolated",
    lifetime: Lifetime = "persistent",
    consolidator: Consolidator | None = None,
    **options: Any,
) -> Session:
    """A session in which each predictor of the program has a past of its own.

    It is the predictor's alone ("isolated") or one of all of them ("shared"); it lasts
    ("persistent"), ends with each call ("episodic") or is not kept ("stateless"). A `consolidator`
    is called at the end of each call with what a node remembers, the turns of the call, and the
    node's name; what it returns is given to the predictor from then on. `options` are Session's.
    """
    require("scope", scope, Scope)
    require("lifetime", lifetime, Lifetime)
    return Session(module, memory=MemoryPlan(scope, lifetime, consolidator), **options)
