"""Turns are logged to a real MLflow, kept in files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM

from sennit.errors import MissingExtraError
from sennit.learning.dspy import Session
from sennit.learning.dspy.mlflow import MlflowRun

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def tracking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return (tmp_path / "runs").as_uri()


def client(tracking: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=tracking)


def test_turns_and_scores_are_logged_to_a_run(tracking: str, tmp_path: Path) -> None:
    lm = DummyLM([{"answer": f"a{n}"} for n in range(9)])
    run = MlflowRun("rope", name="first", tracking_uri=tracking)
    with dspy.context(lm=lm), run:
        session = Session(dspy.Predict("question -> answer"), on_turn=run.turn)
        session(question="q0")
        session(question="q1")
        session.score(lambda example, prediction: float(prediction.answer == "a1"))
        run.scores(session)
    found = client(tracking)
    logged = found.get_run(run.id)
    assert logged.info.status == "FINISHED"
    assert logged.data.metrics == {"turns": 2, "score": 1, "score_mean": 0.5}
    assert [one.step for one in found.get_metric_history(run.id, "score")] == [0, 1]
    file = found.download_artifacts(run.id, "turns/000001.json", str(tmp_path))
    assert json.loads(Path(file).read_text()) == {
        "inputs": {"question": "q1"},
        "outputs": {"answer": "a1"},
    }


def test_a_run_of_an_experiment_that_is_there_and_one_that_fails(tracking: str) -> None:
    first = MlflowRun("rope", tracking_uri=tracking)
    with pytest.raises(RuntimeError), MlflowRun("rope", tracking_uri=tracking) as second:
        raise RuntimeError
    runs = [client(tracking).get_run(one.id).info for one in (first, second)]
    assert runs[0].experiment_id == runs[1].experiment_id
    assert runs[1].status == "FAILED"


def test_a_session_goes_on_when_logging_fails(
    tracking: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = MlflowRun("rope", tracking_uri=tracking)
    run.id = "gone"
    with dspy.context(lm=DummyLM([{"answer": "a"}])):
        session = Session(dspy.Predict("question -> answer"), on_turn=run.turn)
        session(question="q")
    assert len(session) == 1
    assert "on_turn failed" in caplog.text


def test_without_the_extra_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(MissingExtraError, match=r"sennit\[mlflow\]"):
        MlflowRun("rope")
