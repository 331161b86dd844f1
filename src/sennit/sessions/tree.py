"""The branches of a session as a tree.

For people (`print(session.tree())`) and for faces that draw it. A branch whose origin is gone
stands at the top. Nothing here recurses: a chain of ten thousand forks is a fair session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sennit.sessions.branch import Branch

_WIDEST = 120


@dataclass(frozen=True, slots=True)
class BranchNode:
    """A branch and the branches forked from it."""

    branch: Branch
    forked_at: int | None
    """How many messages it took along from its origin; None at the top."""
    children: list[BranchNode] = field(default_factory=list["BranchNode"])


@dataclass(frozen=True, slots=True)
class BranchTree:
    """All branches of a session; `str()` draws it."""

    roots: list[BranchNode]

    def __iter__(self) -> Iterator[BranchNode]:
        """Every node, each before its children."""
        waiting = self.roots[::-1]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children[::-1]

    def __str__(self) -> str:
        lines: list[str] = []
        waiting = [(root, "", "") for root in self.roots[::-1]]
        while waiting:
            node, before, below = waiting.pop()
            lines.append(before + _label(node))
            below = below[-_WIDEST:]  # past that, deeper branches stand no further to the right
            for child in node.children[::-1]:
                last = child is node.children[-1]
                waiting.append(
                    (
                        child,
                        below + ("└─ " if last else "├─ "),
                        below + ("   " if last else "│  "),
                    )
                )
        return "\n".join(lines)


def tree(branches: Iterable[Branch]) -> BranchTree:
    """The tree of these branches."""
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
