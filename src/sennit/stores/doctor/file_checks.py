"""Integrity checks of files and commits.

`{at}` before the name of a table stands for the schema, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sennit.stores.doctor.checks import StoreInspector

_NO_SESSION = """NOT EXISTS (
        SELECT 1 FROM {at}sessions s WHERE s.owner = x.owner AND s.no = x.session)"""
_NO_PLACE = """NOT EXISTS (
        SELECT 1 FROM {at}messages m JOIN {at}commits c
          ON c.owner = m.owner AND c.session = m.session
        WHERE m.owner = x.owner AND m.session = x.session AND m.no = x.message
          AND c.number = x.number)"""
_NO_FILE = """NOT EXISTS (
        SELECT 1 FROM {at}files f WHERE f.owner = x.owner AND f.no = x.file)"""
_NO_VERSION = """NOT EXISTS (
        SELECT 1 FROM {at}versions v WHERE v.owner = x.owner AND v.file = x.no)"""
_NO_WITNESS = """NOT EXISTS (
        SELECT 1 FROM {at}versions v WHERE v.owner = x.owner AND v.no = x.version)"""
_LAST = """(
        SELECT max(v.number) FROM {at}versions v WHERE v.owner = x.owner AND v.file = x.no)"""

LOST_COMMITS = f"""
    SELECT 'commit ' || x.number FROM {{at}}commits x WHERE {_NO_SESSION}
    UNION ALL SELECT 'a use of session ' || x.session FROM {{at}}uses x WHERE {_NO_SESSION}"""
DROP_LOST_COMMITS = tuple(
    f"DELETE FROM {{at}}{table} AS x WHERE {_NO_SESSION}" for table in ("commits", "uses")
)
STRAY_ARCHIVED = f"""
    SELECT 'commit ' || x.number || ' of session ' || x.session FROM {{at}}archived x
    WHERE {_NO_PLACE}"""
DROP_STRAY_ARCHIVED = (f"DELETE FROM {{at}}archived AS x WHERE {_NO_PLACE}",)
LOST_VERSIONS = f"SELECT 'version ' || x.no FROM {{at}}versions x WHERE {_NO_FILE}"
RECOVER_FILES = (
    f"""INSERT INTO {{at}}files (no, owner, id, path, category, created, active, latest) {{given}}
    SELECT x.file, x.owner, {{new_id}}, 'recovered/' || x.file || '.md', NULL, min(x.written), 0,
           max(x.number)
    FROM {{at}}versions x WHERE {_NO_FILE} GROUP BY x.owner, x.file""",
)
EMPTY_FILES = f"SELECT path FROM {{at}}files x WHERE {_NO_VERSION}"
DROP_EMPTY_FILES = (f"DELETE FROM {{at}}files AS x WHERE {_NO_VERSION}",)
WRONG_LATEST = f"SELECT path FROM {{at}}files x WHERE latest <> {_LAST}"
SET_LATEST = (f"UPDATE {{at}}files AS x SET latest = {_LAST} WHERE latest <> {_LAST}",)
STRAY_EVIDENCE = f"""
    SELECT 'evidence of version ' || x.version FROM {{at}}evidence x WHERE {_NO_WITNESS}"""
DROP_STRAY_EVIDENCE = (f"DELETE FROM {{at}}evidence AS x WHERE {_NO_WITNESS}",)
VERSION_COLUMNS = "SELECT 'version ' || no, info, '[]', '[]' FROM {at}versions"


def asked(inspector: StoreInspector, question: str) -> list[tuple[object, ...]]:
    """Run a query in the inspector's dialect and return all rows."""
    return inspector.ask(question.format(**inspector.dialect))


def finding(question: str) -> Callable[[StoreInspector], Iterable[str]]:
    """Return a check that runs a query."""
    return lambda inspector: (str(row[0]) for row in asked(inspector, question))


def mending(statements: Iterable[str]) -> Callable[[StoreInspector], None]:
    """Return a repair that runs statements."""

    def mend(inspector: StoreInspector) -> None:
        for statement in statements:
            inspector.tell(statement.format(**inspector.dialect))

    return mend
