"""The version of the tables, which every store checks when it opens."""

from typing import Final

SCHEMA_VERSION: Final = 19
"""The version of the tables of every store; raised with each change of a schema file.

There are no migrations: a store of another version is refused and left as it is.
"""
