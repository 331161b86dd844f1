"""Search of messages by words, with snippets."""

from __future__ import annotations

from uuid import UUID

from sennit.stores.records.search import TextQuery, TextSearchStore
from sennit.stores.records.sessions import FoundMessage, Owner
from sennit.stores.search import tokenizer


def search_messages(
    store: TextSearchStore, owner: Owner, text: str, session: UUID | None, limit: int
) -> list[FoundMessage]:
    """Return messages that contain words of `text`, best first."""
    words = tokenizer.query_words(text)
    hits = store.hits(owner, TextQuery(tuple(words), session, limit=limit))
    scores = {hit.place: hit.score for hit in hits}
    return [
        FoundMessage(
            message.session,
            message.message.id,
            tokenizer.snippet(tokenizer.message_text(message.message.body), words),
            scores[message.place],
        )
        for message in store.at_places(owner, list(scores))
    ]
