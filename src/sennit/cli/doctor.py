"""`sennit doctor`: installed extras, settings, and integrity of the store."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from sennit import settings
from sennit.api.local_models import check_model
from sennit.api.open import open as open_client
from sennit.cli.targets import JsonOption, StoreOption, is_missing
from sennit.cli.text import emit, working
from sennit.errors import SennitError
from sennit.stores.database_url import redact_url

if TYPE_CHECKING:
    from sennit.stores.doctor.checks import Finding

_EXTRAS = {
    "cli": "prompt_toolkit",
    "dspy": "dspy",
    "embed": "onnxruntime",
    "export": "pyarrow",
    "local": "xllamacpp",
    "mcp": "mcp",
    "models": "pydantic_ai",
    "postgres": "psycopg",
    "server": "uvicorn",
}


@dataclass(frozen=True, slots=True)
class _StoreReport:
    """The findings about a store."""

    status: str
    healthy: bool = True
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the installation and the store; the exit code is 1 if the store is damaged."""
    address = settings.default_url() if store is None else store
    store_report = _check_store(address, repair=repair)
    report = {
        "sennit": version("sennit"),
        "python": sys.version.split()[0],
        "extras": ", ".join(extra for extra, module in _EXTRAS.items() if find_spec(module)),
        "local model": _local_model(),
        "store": f"{redact_url(address)} ({store_report.status})",
    }
    findings = [asdict(finding) for finding in store_report.findings]
    value = report | {"notes": store_report.notes, "findings": findings}
    emit(as_json, value, _lines(report, store_report))
    if not store_report.healthy:
        raise typer.Exit(1)


def _check_store(address: str, *, repair: bool) -> _StoreReport:
    if address == ":memory:":
        return _StoreReport("in memory only")
    if is_missing(address):
        return _StoreReport("does not exist yet; sennit chat creates it")
    try:
        with open_client(address) as client, working("Checking the store…"):
            findings = tuple(client.doctor(repair=repair))
            notes = tuple(client.store_notes())
    except SennitError as error:
        return _StoreReport(str(error), healthy=False)
    if not findings:
        return _StoreReport("ok", notes=notes)
    if repair and all(finding.repairable for finding in findings):
        return _StoreReport("repaired", findings=findings, notes=notes)
    advice = "restore a backup" if repair else "sennit doctor --repair repairs what can be repaired"
    return _StoreReport(f"damaged; {advice}", healthy=False, findings=findings, notes=notes)


def _local_model() -> str:
    try:
        return f"ready ({check_model()})"
    except SennitError as error:
        return str(error)


def _lines(report: dict[str, str], store_report: _StoreReport) -> Iterator[str]:
    notes = (("note", note) for note in store_report.notes)
    yield from (f"{name:<12} {value}" for name, value in (*report.items(), *notes))
    for finding in store_report.findings:
        suffix = "" if finding.repairable else " (cannot be repaired)"
        yield f"- {finding.said} {finding.count}×: {', '.join(finding.rows)}{suffix}"
