"""Telemetry of a run: one span, one log line, usage metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sennit import telemetry
from sennit.services.models.traced_call import usage_attributes
from sennit.turns.result import Return
from sennit.turns.run import Run

_FAILED_STOP_REASONS = ("error", "invalid", "max_turns", "budget", "loop", "length")


async def trace_run(run: Run, work: Callable[[], Awaitable[Return]]) -> Return:
    """Return the result of the work, recorded in a span and a log line."""
    if not telemetry.on():
        return await work()
    request = run.request
    provider, model = telemetry.provider_and_model(request.model_name)
    agent = str(getattr(request.session.agent, "value", request.session.agent))
    notes = {
        telemetry.AGENT: agent,
        telemetry.PROVIDER: provider,
        telemetry.REQUEST_MODEL: model,
        telemetry.CONVERSATION: str(request.session.id),
        telemetry.BRANCH: str(request.branch.id),
        telemetry.RUN: str(run.id),
    }
    with telemetry.traced(telemetry.INVOKE_AGENT, agent, notes) as span:
        result = await work()
        _record_result(span, result)
        return result


def _record_result(span: telemetry.Span, result: Return) -> None:
    metrics = result.metrics
    span.set_attributes(usage_attributes(metrics.usage))
    span.set_attributes(
        {
            telemetry.STOP_REASON: result.stop_reason,
            telemetry.TURNS: metrics.turns,
            telemetry.TOOL_CALLS: metrics.tool_calls,
            telemetry.RESPONSE_MODEL: metrics.model,
        }
    )
    if result.stop_reason in _FAILED_STOP_REASONS:
        codes = [notice.code for notice in result.notices if notice.severity == "error"]
        span.fail(codes[-1] if codes else str(result.stop_reason))
