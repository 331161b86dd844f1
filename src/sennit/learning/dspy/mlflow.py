"""MLflow logging of turns and scores.

A run holds a metric per turn, the turns as JSON artifacts, and the scores once they are known. If
logging fails in `on_turn`, the session logs a warning and still records the turn.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

from sennit.errors import MissingExtraError
from sennit.learning.dspy.history import Turn
from sennit.learning.dspy.plain_values import plain_fields

if TYPE_CHECKING:
    from sennit.learning.dspy.session import Session

__all__ = ["MlflowRun"]


class MlflowRun:
    """An MLflow run that turns are logged to.

    with MlflowRun("rope") as run:
        session = Session(program, on_turn=run.turn)
        session(question="Name a knot")
        session.score(metric)
        run.scores(session)
    """

    def __init__(
        self, experiment: str, *, name: str | None = None, tracking_uri: str | None = None
    ) -> None:
        """Start a run; create the experiment if it does not exist. Raises MLflow's errors."""
        try:
            mlflow: Any = import_module("mlflow")
        except ImportError as error:
            raise MissingExtraError.of("Logging to MLflow", "mlflow") from error
        self._client: Any = mlflow.MlflowClient(tracking_uri=tracking_uri)
        entry = self._client.get_experiment_by_name(experiment)
        uid = self._client.create_experiment(experiment) if entry is None else entry.experiment_id
        self.id: str = self._client.create_run(uid, run_name=name).info.run_id
        """The MLflow run id."""

    def turn(self, session: Session, turn: Turn) -> None:
        """Log a turn; for `Session(on_turn=...)`."""
        fields = {"inputs": plain_fields(turn.inputs), "outputs": plain_fields(turn.outputs)}
        self._client.log_dict(self.id, fields, f"turns/{turn.index:06}.json")
        self._client.log_metric(self.id, "turns", len(session), step=turn.index)

    def scores(self, session: Session) -> None:
        """Log the scores of the turns, and their average."""
        scored = [(turn.index, turn.score) for turn in session.turns if turn.score is not None]
        for index, score in scored:
            self._client.log_metric(self.id, "score", score, step=index)
        if scored:
            mean = sum(score for _, score in scored) / len(scored)
            self._client.log_metric(self.id, "score_mean", mean)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._client.set_terminated(self.id, "FINISHED" if kind is None else "FAILED")
