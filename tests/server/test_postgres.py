"""Two servers on one PostgreSQL: each tells what the other runs, and goes on with what it left."""

from __future__ import annotations

import signal
from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict

from tests.http_server import Talker, all_events, following, new_branch, run, serving, texts
from tests.http_server_process import served

pytest_plugins = ("tests.postgres",)

WORDS = 3


def address(given: str) -> str:
    """A database as `sennit.open` takes it."""
    parts = {name: str(value) for name, value in conninfo_to_dict(given).items()}
    return f"postgresql:///{parts.pop('dbname')}?{urlencode(parts)}"


def test_a_server_tells_what_another_runs_and_goes_on_when_that_dies(url: str) -> None:
    store = address(url)
    with served(store, WORDS) as first, serving(store, models=[Talker()]) as second:
        branch = new_branch(first)
        started = run(first, branch)
        heard = []
        with following(second, started["events"]) as events:
            for one in events:
                heard.append(one)
                if sum(it.kind == "text.delta" for it in heard) == WORDS:
                    break
        assert second.get(branch).json()["running"] is True
        elsewhere = second.post(f"{branch}/cancel")
        assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (409, "elsewhere")
        busy = second.post(f"{branch}/runs", {"text": "Me too"})
        assert (busy.status_code, busy.json()["error"]["code"]) == (409, "busy")
        first.end(signal.SIGKILL)
        assert second.get(branch).json()["interrupted"] is True
        assert second.post(f"{branch}/resume").status_code == 202
        heard += all_events(second, started["events"], last=heard[-1].seq)
        assert [one.seq for one in heard] == list(range(1, len(heard) + 1))
        assert texts(second, branch) == ["Be brief.", "Hello", "You said: Hello "]
