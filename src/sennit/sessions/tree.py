"""The branches of a session as a tree.

For people (`print(session.tree())`) and for user interfaces. A branch whose source was removed is a
root. Nothing recurses, so a chain of ten thousand forks is fine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sennit.sessions.branch import Branch

_MAX_INDENT = 120


@dataclass(frozen=True, slots=True)
class BranchNode:
    """A branch and the branches forked from it."""

    branch: Branch
    """The branch."""
    forked_at: int | None
    """The number of messages shared with its source; None for a root."""
    children: list[BranchNode] = field(default_factory=list["BranchNode"])
    """The branches forked from it."""


@dataclass(frozen=True, slots=True)
class BranchTree:
    """All branches of a session; `str()` draws it."""

    roots: list[BranchNode]
    """The branches that were not forked from another one."""

    def __iter__(self) -> Iterator[BranchNode]:
        """Iterate over all nodes, parents before children."""
        stack = self.roots[::-1]
        while stack:
            node = stack.pop()
            yield node
            stack += node.children[::-1]

    def __str__(self) -> str:
        lines: list[str] = []
        stack = [(root, "", "") for root in self.roots[::-1]]
        while stack:
            node, prefix, child_prefix = stack.pop()
            lines.append(prefix + _label(node))
            child_prefix = child_prefix[
                -_MAX_INDENT:
            ]  # past that, deeper branches stand no further to the right
            for child in node.children[::-1]:
                last = child is node.children[-1]
                stack.append(
                    (
                        child,
                        child_prefix + ("└─ " if last else "├─ "),
                        child_prefix + ("   " if last else "│  "),
                    )
                )
        return "\n".join(lines)


def tree(branches: Iterable[Branch]) -> BranchTree:
    """Return the tree of these branches."""
    nodes: dict[str, BranchNode] = {}
    origins: dict[str, str] = {}
    for branch in branches:
        origin = branch.metadata.get("forked_from")
        nodes[str(branch.id)] = BranchNode(branch, origin and origin["message_count"])
        if origin:
            origins[str(branch.id)] = origin["branch_id"]
    roots: list[BranchNode] = []
    for uid, node in nodes.items():
        origin = nodes.get(origins.get(uid, ""))
        (roots if origin is None else origin.children).append(node)
    return BranchTree(roots)


def _label(node: BranchNode) -> str:
    count = len(node.branch)
    label = f"{node.branch.name} ({count} message{'' if count == 1 else 's'}"
    return f"{label})" if node.forked_at is None else f"{label}, forked after {node.forked_at})"
