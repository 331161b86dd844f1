"""`sennit.open` and `sennit.conversation`: a client by store URL, a conversation in memory."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Unpack

from sennit.api.store_url import open_store

if TYPE_CHECKING:
    from datetime import timedelta

    from sennit.api.client import Client
    from sennit.memory.retrieval.embedders import Embedder
    from sennit.messages.message import Message
    from sennit.services.models.params import ModelParams
    from sennit.services.models.protocol import Model
    from sennit.services.registry import ServiceRegistry, ToolSource
    from sennit.stores.sqlite.connection import Durability
    from sennit.turns.context import ContextProvider
    from sennit.turns.conversation import ConversationSession
    from sennit.turns.observers import ConversationObserver
    from sennit.turns.policies import PolicySource


def open(
    url: str | PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    user: str | None = None,
    agent: str | None = None,
    shared_space: bool = False,
    durability: Durability = "full",
    services: ServiceRegistry | None = None,
    embedder: Embedder | None = None,
    retention: timedelta | None = None,
) -> Client:
    """Open a client for one user's sessions in a store.

    `url` is the path of a SQLite file ("~" is expanded), "postgresql://…" (with the extra
    `postgres`), ":memory:" for a store that ends with the program, or None for SENNIT_URL or else a
    file in the user's data folder. `tenant` and `user` are the owner of the sessions, by default
    "default"; `agent` is the sender of the assistant's messages, by default "assistant". Each may
    have 800 bytes. With `shared_space` the client also has access to the files that all users of
    the tenant share, under viking://agent/shared and viking://resources/shared.
    `durability="normal"` syncs a SQLite file less often: acknowledged writes survive a crash of the
    program, but perhaps not of the machine. `services` are the models and tools of its sessions,
    which several clients may share. With an `embedder`, such as `sennit.memory.MiniLM()`,
    `client.find` also searches by meaning. Messages removed from their last branch are erased after
    the `retention` time, by default SENNIT_RETENTION_DAYS or 30 days, when the client is closed;
    with `timedelta(0)` at once.
    Raises StoreError if the store cannot be opened, ValidationError for an unsupported URL or an
    invalid name.
    """
    from sennit.api.client import Client

    store = open_store(url, durability)
    try:
        return Client(
            store,
            tenant=tenant,
            user=user,
            agent=agent,
            shared_space=shared_space,
            services=services,
            embedder=embedder,
            retention=retention,
        )
    except BaseException:
        store.close()
        raise


def conversation(
    model: str | Model,
    *,
    tools: Iterable[ToolSource] = (),
    system: str | Message | None = None,
    observers: Iterable[ConversationObserver] = (),
    policies: Iterable[PolicySource] = (),
    contexts: Iterable[ContextProvider] = (),
    generate_greeting: bool = False,
    **params: Unpack[ModelParams],
) -> ConversationSession:
    """Return a conversation that lives in memory, on a session of its own.

    The arguments are those of `Session.conversation`: `model` is an object or a provider string
    such as "openai:gpt-5" or "local". To keep a conversation, open a store:
    `sennit.open("chat.db").session("ada").conversation(model=...)`.
    """
    from sennit.api.session import Session

    return Session().conversation(
        model=model,
        tools=tools,
        system=system,
        observers=observers,
        policies=policies,
        contexts=contexts,
        generate_greeting=generate_greeting,
        **params,
    )
