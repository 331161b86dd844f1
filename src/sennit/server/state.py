"""Shared state of a running server: store, clients, models and runs.

It is opened when the server starts. At shutdown new requests are rejected, active runs are
suspended so that they can be resumed, event streams end, and the store is closed last.
"""

from __future__ import annotations

from asyncio import Task, create_task, get_running_loop, shield, sleep, to_thread, wait
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import Final

import anyio

from sennit.api.client_pool import ClientPool
from sennit.api.store_url import open_store
from sennit.errors import ExistsError
from sennit.memory.retrieval.embedders import Embedder
from sennit.server.active_runs import ActiveRuns
from sennit.server.http.caches import BranchCache
from sennit.server.http.callers import CallerResolver
from sennit.server.http.event_stream import EventStream
from sennit.server.http.limits import ActiveCounts
from sennit.server.http.quotas import Quotas
from sennit.server.http.threads import FairThreadPool
from sennit.server.http.tokens import TokenFile
from sennit.server.settings import ServerSettings
from sennit.services.models.protocol import Model
from sennit.services.registry import ServiceRegistry
from sennit.services.tools.tool import Tool

_EXECUTOR_THREADS = 32
_PURGE_INTERVAL_SECONDS = 3600.0
_SUSPEND_TIMEOUT_SECONDS = 5.0  # a run that takes longer is recovered as after a crash


class ServerState:
    """The state that all requests share."""

    clients: ClientPool
    callers: CallerResolver

    def __init__(self, settings: ServerSettings) -> None:
        self.settings: Final = settings
        self.tokens: Final = TokenFile(settings.tokens)
        limits = settings.limits
        self.runs: Final = ActiveRuns(
            ActiveCounts("runs under way", limits.token_runs, limits.owner_factor)
        )
        self.work: Final = FairThreadPool(limits)
        self.quotas: Final = Quotas(limits, self.work)
        self.branch_cache: Final = BranchCache()
        """The branches of conversations whose client names no session."""
        self.streams: set[EventStream] = set()
        """The event streams to end at shutdown."""
        self._stack, self._open = AsyncExitStack(), False
        self._checking: Task[None] | None = None
        self.draining: bool = False
        """Whether the server is about to stop."""
        self.models: dict[str, Model] = {}
        """The models by name, the default first."""
        self.tools: dict[str, Tool] = {}
        """The tools that models may call, by name."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Open the resources unless they are open, and close them at the end."""
        await self.open()
        try:
            yield
        finally:
            await self._stack.aclose()

    async def open(self) -> None:
        """Open the store, the models and the tools, once; close them again on an error."""
        if self._open:
            return
        async with AsyncExitStack() as stack:
            # Enough threads that slow store access does not delay short requests.
            threads = ThreadPoolExecutor(_EXECUTOR_THREADS, thread_name_prefix="sennit")
            get_running_loop().set_default_executor(threads)
            # Import the rest of anyio now, not during a request.
            async with anyio.create_task_group():
                pass
            services = ServiceRegistry()
            await self._register(services, stack)
            store = await to_thread(open_store, self.settings.url)
            self.clients = ClientPool(
                store,
                services=services,
                embedder=self.settings.embedder,
                shared_spaces=self.settings.shared_spaces,
                retention=self.settings.retention,
            )
            stack.push_async_callback(to_thread, self.clients.close)
            await stack.enter_async_context(_purging(self.clients))
            stack.push_async_callback(to_thread, self.work.close)
            self.callers = CallerResolver(self.clients, self.settings.limits)
            stack.push_async_callback(self.drain)
            self._stack, self._open = stack.pop_all(), True

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder of /v1/embeddings: that of the settings, else MiniLM."""
        if self.settings.embedder is not None:
            return self.settings.embedder
        from sennit.memory.retrieval.minilm import MiniLM

        return MiniLM()

    async def check_store(self) -> None:
        """Read from the database; concurrent callers share one read. Raises StoreError."""
        if self._checking is None or self._checking.done():
            self._checking = create_task(to_thread(self.clients.check))
        await shield(self._checking)

    async def drain(self) -> None:
        """Reject new requests, suspend active runs and end event streams."""
        self.draining = True
        await self.runs.suspend_all(_SUSPEND_TIMEOUT_SECONDS)
        for stream in list(self.streams):
            stream.stop()

    async def _register(self, services: ServiceRegistry, stack: AsyncExitStack) -> None:
        for model in self.settings.models or (_embedded(),):
            services.register(model)
            self.models[model.name] = model
            if (close := getattr(model, "aclose", None)) is not None:
                stack.push_async_callback(close)
        tools = list(self.settings.tools)
        for server in self.settings.servers:
            stack.push_async_callback(server.aclose)
            tools += (await server.aconnect()).tools
        for tool in tools:
            if tool.name in self.tools:
                raise ExistsError(f"Duplicate tool name {tool.name!r}; rename one of the tools.")
            self.tools[tool.name] = services.register(tool)


@asynccontextmanager
async def _purging(clients: ClientPool) -> AsyncGenerator[None]:
    """Erase removed messages whose retention has ended, now and every hour."""

    async def purge() -> None:
        while True:
            await to_thread(clients.purge)
            await sleep(_PURGE_INTERVAL_SECONDS)

    purging = create_task(purge())
    try:
        yield
    finally:
        purging.cancel()
        await wait([purging])


def _embedded() -> Model:
    from sennit.services.models.imodel import iModel

    return iModel("local")
