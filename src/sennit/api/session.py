"""The public Session.

SessionCore knows messages and branches; this class adds one-line doors to what is built on them.
"""

from __future__ import annotations

from sennit.sessions.diff import BranchDiff, diff
from sennit.sessions.session import BranchRef, SessionCore
from sennit.sessions.tree import BranchTree, tree


class Session(SessionCore):
    """A conversation with many branches: typed messages, stored once, shared by all of them.

    session = Session()
    main = session.create_branch(name="main")
    session.add_message(Message(InstructionContent(instruction="Hello")), branches=main)
    other = session.fork(main, name="other")
    """

    def diff(self, a: BranchRef, b: BranchRef) -> BranchDiff:
        """The common ancestor of two branches and what each has since; raises NotFoundError."""
        return diff(self.get_branch(a), self.get_branch(b))

    def tree(self) -> BranchTree:
        """The branches as a tree of forks; print it to see it."""
        return tree(self.branches)
