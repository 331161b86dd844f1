"""Known memories similar to a candidate, found through the store's index.

The index returns memories of the candidate's owner and category that share a content word with it,
and `TextRanker` orders them. So the cost of a commit depends on its matches, not on the size of the
memory. The profile is one file, of which all facts are ranked.
"""

from __future__ import annotations

from collections.abc import Sequence

from sennit.memory.commit.file_changes import FileChangeSet
from sennit.memory.extraction.similarity import TextRanker, search_text
from sennit.memory.extraction.terms import is_frame
from sennit.memory.extraction.values import Candidate, Category, KnownMemory
from sennit.memory.scope import MemoryScope, folder_of
from sennit.stores.records.search import FileQuery
from sennit.stores.search.tokenizer import query_words

_MAX_HITS = 50


class SimilarMemories:
    """Ranks stored memories for the candidates of one commit."""

    def __init__(self, scope: MemoryScope, file_changes: FileChangeSet) -> None:
        self._scope, self._file_changes = scope, file_changes
        self._facts: TextRanker | None = None

    def __call__(self, candidate: Candidate) -> Sequence[KnownMemory]:
        """Return known memories of the candidate's owner and category, most similar first."""
        if candidate.category is Category.PROFILE:
            if self._facts is None:
                self._facts = TextRanker(self._file_changes.known_facts())
            return self._facts(candidate)
        category = candidate.category
        hits = self._scope.store.file_hits(
            FileQuery(
                _search_words(candidate),
                (self._scope.owner_of(category),),
                folder_of(category),
                (str(category),),
                limit=_MAX_HITS,
            )
        )
        return TextRanker(self._file_changes.known_memory(hit.file) for hit in reversed(hits))(
            candidate
        )


def _search_words(candidate: Candidate) -> tuple[str, ...]:
    """Return the words to search for, without frame words, which occur in most memories."""
    words = query_words(search_text(candidate))
    return tuple(word for word in words if not is_frame(word)) or tuple(words)
