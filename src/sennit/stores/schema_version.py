"""The schema version, which every store checks when it opens."""

from typing import Final

SCHEMA_VERSION: Final = 20
"""The schema version of every store; raised with each change of a schema file.

There are no migrations: a store with another version is refused and left unchanged.
"""
