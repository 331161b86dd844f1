"""A DSPy program that remembers: a session is a program, and its calls are turns.

The program inside hears the conversation without knowing of it. The session is a `dspy.Module`
whose predictors are those of the program, so optimisers compile it like any other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import signature as parameters_of
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, cast, get_args

from sennit.errors import InvalidTypeError, ValidationError, shown
from sennit.ids import new_id
from sennit.learning.dspy.call import Call
from sennit.learning.dspy.framework import Example, Module, Prediction
from sennit.learning.dspy.hearing import Speaking, current_call, wire
from sennit.learning.dspy.locks import LockMode
from sennit.learning.dspy.log import CopyMode, Telling
from sennit.learning.dspy.nodes import (
    Consolidator,
    Lifetime,
    MemoryPlan,
    NodeMemory,
    Scope,
)
from sennit.learning.dspy.past import Snapshot, Told, history_from
from sennit.learning.dspy.programs import copied, fields_of
from sennit.learning.dspy.rehearsal import Rehearsal
from sennit.learning.dspy.state import SessionState, read_state, write_state
from sennit.learning.dspy.turn import Turn
from sennit.learning.labels import Label, label_many
from sennit.messages.codec import dumps
from sennit.sessions.client import ClientCore

HistoryPolicy: TypeAlias = Literal["override", "use_if_provided", "replace_session"]
OnMetricError: TypeAlias = Literal["zero", "raise"]
OnTurn: TypeAlias = Callable[["Session", Turn], object]

_log = logging.getLogger(__name__)
_bound: ContextVar[Mapping[int, SessionState]] = ContextVar("sennit_states")


@dataclass(frozen=True, slots=True)
class _Config:
    """What a session was made with."""

    telling: Telling
    policy: HistoryPolicy
    on_metric_error: OnMetricError
    strict: bool
    lock: LockMode
    on_turn: OnTurn | None
    plan: MemoryPlan | None


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
        memory: MemoryPlan | None = None,
    ) -> None:
        """Wrap a program; its own copy of it hears the turns.

        `max_turns` messages of the history reach a call (0: none), without `exclude_fields` and of
        the inputs only `history_input_fields`. `history_policy` says what an explicit history does:
        "override" answers it and keeps nothing, "use_if_provided" keeps the turn, "replace_session"
        begins anew with it. With `store` and `key` the turns are kept there, and gone on with.
        With `memory` each predictor has a past of its own; see `with_memory`.
        Raises ValidationError for an unknown word, InvalidTypeError for what is no dspy.Module.
        """
        super().__init__()  # pyright: ignore
        _require("history_policy", history_policy, HistoryPolicy)
        _require("on_metric_error", on_metric_error, OnMetricError)
        _require("lock", lock, LockMode)
        _require("copy_mode", copy_mode, CopyMode)
        only = history_input_fields if input_field_override is None else input_field_override
        telling = Telling(
            history_field=history_field,
            exclude=frozenset(exclude_fields or ()),
            only_inputs=None if only is None else frozenset(only),
            max_turns=_limit("max_turns", max_turns, 0),
            max_stored=_limit("max_stored_turns", max_stored_turns, 1),
            copies=copy_mode,
        )
        config = _Config(
            telling,
            history_policy,
            on_metric_error,
            strict_history_annotation,
            lock,
            on_turn,
            memory,
        )
        self.__dict__.update(_config=config, _rehearsal=Rehearsal())
        self._take_in(module)
        state = SessionState.kept(store, key, telling, lock)
        if initial_history is not None and state.is_new:
            state.log.begin_with(history_from(initial_history))
        self.__dict__["_state"] = state

    def _take_in(self, module: Any) -> None:
        if not isinstance(module, Module):
            raise InvalidTypeError(f"A session wraps a dspy.Module, got {shown(module)}.")
        config = self._config
        own = copied(module, config.telling.copies)
        wire(own, config.telling.history_field, strict=config.strict)
        self.module = own
        program: Any = own.__class__
        takes = parameters_of(program.forward).parameters
        self.__dict__["_tells"] = config.telling.history_field in takes

    @property
    def state(self) -> SessionState:
        """Where its turns are: its own, or the one that is bound here."""
        return _bound.get({}).get(id(self), self.__dict__["_state"])

    @contextmanager
    def use_state(self, state: SessionState) -> Generator[SessionState]:
        """Speak on another conversation inside the block; others may use theirs meanwhile."""
        state.adopt(self._config.telling, self._config.lock)
        token = _bound.set({**_bound.get({}), id(self): state})
        try:
            yield state
        finally:
            _bound.reset(token)

    @property
    def turns(self) -> list[Turn]:
        """The turns, the oldest first."""
        return list(self.state.log.turns)

    @property
    def session_history(self) -> Any:
        """What the next call will hear, as a dspy.History."""
        return Snapshot.of(self.state.log.span())

    @property
    def initial_history(self) -> list[Told]:
        """The history the conversation began with."""
        return self.state.log.initial

    def __len__(self) -> int:
        return len(self.state.log.turns)

    def __bool__(self) -> bool:
        return True  # also before the first turn

    def forward(self, **inputs: Any) -> Any:
        """Call the program as the next turn."""
        call = self._call(inputs)
        with call.lock.held(), Speaking(call.begun()), closing(call):
            prediction = self.module(**call.arguments)
            self._keep(call, prediction)
        return prediction

    async def aforward(self, **inputs: Any) -> Any:
        """The same, awaited."""
        call = self._call(inputs)
        async with call.lock.aheld():
            with Speaking(call.begun()), closing(call):
                prediction = await self.module.acall(**call.arguments)
                self._keep(call, prediction)
        return prediction

    def _call(self, inputs: dict[str, Any]) -> Call:
        field = self._config.telling.history_field
        given = history_from(inputs.pop(field)) if inputs.get(field) is not None else None
        inputs.pop(field, None)
        return Call(
            program=self.module,
            state=self.state,
            inputs=inputs,
            given=given,
            parent=current_call(),
            tell_as=field if self._tells else None,
            memory=self._node_memory(),
        )

    def _node_memory(self) -> NodeMemory | None:
        plan = self._config.plan
        if plan is None or self._rehearsal.goes_on:
            return None
        return NodeMemory(self.state.nodes, plan)

    def _keep(self, call: Call, prediction: Any) -> None:
        policy = self._config.policy
        if self._rehearsal.goes_on or (call.given is not None and policy == "override"):
            return
        log = call.state.log
        if call.given is not None and policy == "replace_session":
            log.begin_with(call.given)
            turn = log.add(call.inputs, fields_of(prediction), nodes=call.nodes)
        else:
            turn = log.add(
                call.inputs, fields_of(prediction), call.span, call.given, nodes=call.nodes
            )
        if self._config.on_turn is not None:
            try:
                self._config.on_turn(self, turn)
            except Exception:
                _log.warning("on_turn failed; the turn is kept", exc_info=True)

    def add_turn(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> Turn:
        """Put a turn at the end that was not called for."""
        return self.state.log.add(inputs, outputs)

    def pop_turn(self) -> Turn | None:
        """Take the last turn back; None if there is none."""
        return next(iter(self.undo()), None)

    def undo(self, steps: int = 1) -> list[Turn]:
        """Take turns back, the last one first; as many as there are."""
        return self.state.log.take_back(steps)

    def reset(self) -> None:
        """Begin anew with the history it began with."""
        self.state.log.begin_with(self.state.log.initial)

    def fork(self) -> Self:
        """A session that goes on from here by itself."""
        return self._copy(self.state.fork(), copied(self.module, self._config.telling.copies))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self._copy(self.state.detached(), copied(self.module, "deep"))

    def reset_copy(self) -> Self:
        """A copy with no demonstrations and no turns, as optimisers ask for."""
        made = cast("Self", super().reset_copy())  # pyright: ignore
        made.reset()
        return made

    def _copy(self, state: SessionState, module: Any) -> Self:
        made: Any = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made.__dict__.update(_state=state, module=module, _rehearsal=Rehearsal())
        made.__dict__.update(history=[], callbacks=[*self.callbacks])
        return made

    def update_module(self, module: Any) -> None:
        """Go on with another program, such as a compiled one."""
        self._take_in(module.module if isinstance(module, Session) else module)

    def score(
        self, metric: Callable[..., Any], gold: Any = None, *, by: str | None = None
    ) -> list[float]:
        """Ask a metric about each turn, once; kept as the turns' scores, and as labels."""
        turns = self.turns
        scores = [self._judged(metric, turn, gold) for turn in turns]
        name = by or getattr(metric, "__name__", type(metric).__name__)
        log = self.state.log
        session = log.session
        log.judge(scores)
        told = [(turn.message, score) for turn, score in zip(log.turns, scores, strict=True)]
        label_many(session, [Label.of(one, score, by=name) for one, score in told if one])
        return scores

    def _judged(self, metric: Callable[..., Any], turn: Turn, gold: Any) -> float:
        try:
            expected = self._example(turn, with_history=True) if gold is None else gold
            return float(metric(expected, Prediction(**turn.outputs)))
        except Exception:
            if self._config.on_metric_error == "raise":
                raise
            return 0.0

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

        With `min_score` those that a metric, or their score, puts lower are left out, and with
        `strict_trajectory` all that follow one.
        """
        found: list[Any] = []
        for turn in self.turns:
            if require_outputs and not turn.outputs:
                continue
            if min_score is not None:
                score = turn.score if metric is None else self._judged(metric, turn, None)
                if score is None or score < min_score:
                    if strict_trajectory:
                        break
                    continue
            found.append(self._example(turn, with_history=include_history))
        return found

    to_trainset = to_examples

    def _example(self, turn: Turn, *, with_history: bool) -> Any:
        field = self._config.telling.history_field
        past = {field: turn.history_snapshot} if with_history else {}
        made = Example(**turn.inputs, **past, **turn.outputs)
        return made.with_inputs(*turn.inputs, *past)

    @staticmethod
    def merge_examples(*sessions: Session, **options: Any) -> list[Any]:
        """The examples of several sessions, one after the other; options as in `to_examples`."""
        return [example for one in sessions for example in one.to_examples(**options)]

    def save_state(self) -> dict[str, Any]:
        """The conversation and how it is told, as plain data."""
        return write_state(self.state.log, self._config.telling, self._config.policy)

    def save(self, path: str | Path) -> None:
        """Write `save_state` to a file; the program is not part of it."""
        target = Path(path)
        part = target.with_name(f".{target.name}.{new_id().hex}.part")
        part.write_bytes(dumps(self.save_state()))
        part.replace(target)

    @classmethod
    def load_from(cls, path: str | Path, module: Any, **options: Any) -> Self:
        """The session that was saved, around a program; options replace what was saved."""
        saved = read_state(Path(path).read_bytes())
        made = cls(module, **{**saved.options, **options})
        saved.fill(cast("Any", made).state.log)
        return made


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
    _require("scope", scope, Scope)
    _require("lifetime", lifetime, Lifetime)
    return Session(module, memory=MemoryPlan(scope, lifetime, consolidator), **options)


def _require(name: str, given: Any, allowed: Any) -> None:
    words = get_args(allowed)
    if given not in words:
        raise ValidationError(f"{name} is one of {list(words)}, got {shown(given)}.")


def _limit(name: str, given: int | None, least: int) -> int | None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(f"{name} is a whole number or None, got {shown(given)}.")
    if given is not None and given < least:
        raise ValidationError(f"{name} is at least {least}, got {given}.")
    return given
