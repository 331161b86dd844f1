"""Long-term memory: commits, extraction, retrieval and the virtual file system."""

from typing import TYPE_CHECKING

from sennit.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from sennit.memory.commit.auto_commit import AutoCommit
    from sennit.memory.retrieval.minilm import MiniLM
    from sennit.memory.retrieval.prompt_context import MemoryContext
    from sennit.memory.tools import memory_tools

__all__ = ["AutoCommit", "MemoryContext", "MiniLM", "memory_tools"]

if not TYPE_CHECKING:  # to type checkers, a misspelt name is an error
    __getattr__ = lazy_exports(
        __name__,
        {
            "commit.auto_commit": "AutoCommit",
            "retrieval.minilm": "MiniLM",
            "retrieval.prompt_context": "MemoryContext",
            "tools": "memory_tools",
        },
    )
