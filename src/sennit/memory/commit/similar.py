"""Known memories similar to a candidate, found through the store's index.

The index gives memories of the candidate's owner and category that share a telling word with it,
and `TextRanker` puts these in order. So a commit costs what its matches cost, however much else is
remembered. The profile is one file, whose facts are all looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.memory.commit.file_changes import FileChangeSet
from sennit.memory.extraction.similarity import TextRanker, query
from sennit.memory.extraction.terms import is_frame
from sennit.memory.extraction.values import Candidate, Category, KnownMemory
from sennit.memory.scope import MemoryScope, folder_of
from sennit.stores.records.search import FileQuery
from sennit.stores.search.tokenizer import asked

_MOST = 50


class SimilarMemories:
    """Ranks what a store has for the candidates of one commit."""

    def __init__(self, realm: MemoryScope, drafts: FileChangeSet) -> None:
        self._realm, self._drafts = realm, drafts
        self._facts: TextRanker | None = None

    def __call__(self, candidate: Candidate) -> Sequence[KnownMemory]:
        """Known memories of the candidate's owner and category, the most similar first."""
        if candidate.category is Category.PROFILE:
            if self._facts is None:
                self._facts = TextRanker(self._drafts.known_facts())
            return self._facts(candidate)
        category = candidate.category
        found = self._realm.store.file_hits(
            FileQuery(
                _telling(candidate),
                (self._realm.owner_of(category),),
                folder_of(category),
                (str(category),),
                limit=_MOST,
            )
        )
        return TextRanker(self._drafts.known(hit.file) for hit in reversed(found))(candidate)


def _telling(candidate: Candidate) -> tuple[str, ...]:
    """The words to look for; those that facts are put in are in every other memory."""
    words = asked(query(candidate))
    return tuple(word for word in words if not is_frame(word)) or tuple(words)
