"""psycopg, imported here and nowhere else."""

from __future__ import annotations

from sennit.errors import MissingExtraError

try:
    import psycopg
    from psycopg import errors as pg
    from psycopg import pq
    from psycopg.abc import PQGen
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.generators import execute, fetch_many, pipeline_communicate
    from psycopg.pq import TransactionStatus
    from psycopg.waiting import Ready, Wait
    from psycopg_pool import ConnectionPool, PoolTimeout
except ImportError as error:
    raise MissingExtraError.of("The PostgreSQL store", "postgres") from error

__all__ = [
    "ConnectionPool",
    "PQGen",
    "PoolTimeout",
    "Ready",
    "TransactionStatus",
    "Wait",
    "conninfo_to_dict",
    "execute",
    "fetch_many",
    "pg",
    "pipeline_communicate",
    "pq",
    "psycopg",
]
