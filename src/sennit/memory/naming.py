"""References to memory files in usage records, run events and commits.

File names are made of memory text, and commits quote it in their reasons. So references are removed
with a file and rewritten when it is moved: whoever forgets it later finds every reference by its
current URI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any
from uuid import UUID

from sennit.errors import NotFoundError
from sennit.memory.commit import profile
from sennit.memory.scope import MemoryScope, plain_uri
from sennit.messages.codec import dumps, loads
from sennit.sessions.retry_on_conflict import retry_on_conflict
from sennit.stores.records.commits import CommitRecord, PutCommit
from sennit.stores.records.files import FileRecord, VersionRecord


def remove_references(
    scope: MemoryScope, touched: Iterable[FileRecord], *, all_gone: bool = False
) -> None:
    """Remove references to files that are gone, and quotations of those that changed.

    Text that was recalled from either leaves the prompts too.

    With `all_gone` all files count as gone. Once a file is gone, nothing leads to the references to
    it, so they are removed first: then an interrupted call can be repeated.
    """
    uris_by_agent: dict[str, set[str]] = {}
    for file in touched:
        agent = file.owner.name if file.owner.kind == "agent" else scope.agent_name
        if scope.owns(file.owner):
            uris_by_agent.setdefault(agent, set()).add(str(scope.uri(file)))
    for agent, uris in uris_by_agent.items():
        _remove_for_agent(scope.of_agent(agent), sorted(uris), all_gone=all_gone)


def _remove_for_agent(scope: MemoryScope, uris: Sequence[str], *, all_gone: bool) -> None:
    def is_kept(uri: str) -> bool:
        return not all_gone and exists(scope, uri)

    _rewrite_commits(scope, uris, partial(_strip_body, scope, is_kept, uris))
    removed = [uri for uri in uris if not is_kept(uri)]
    changed = [uri for uri in uris if uri not in removed]
    for touched, erase in ((removed, scope.store.unname), (changed, scope.store.erase_uses)):
        if names := list(dict.fromkeys((*touched, *map(scope.reference, touched)))):
            erase(scope.user, names)


def rename_references(scope: MemoryScope, moved: Mapping[str, str]) -> None:
    """Rewrite the references to moved files in the user's sessions."""
    _rewrite_commits(scope, list(moved), partial(_rename_in_body, scope, moved))
    references = {scope.reference(old): scope.reference(new) for old, new in moved.items()}
    scope.store.rename(scope.user, {**references, **moved})


def _rename_in_body(scope: MemoryScope, moved: Mapping[str, str], body: bytes) -> bytes:
    """Return the body of a commit with new URIs, including those of facts in a file."""
    own = _is_by_agent(scope, loads(body))
    for old, new in moved.items():
        pairs = [(scope.reference(old), scope.reference(new))]
        if own or pairs[0][0] == old:
            pairs.append((old, new))
        for before, after in pairs:
            body = body.replace(dumps(before), dumps(after))
        if pairs[0][0] == old:  # a fact in it
            body = body.replace(dumps(old)[:-1] + b"#", dumps(new)[:-1] + b"#")
    return body


def _is_by_agent(scope: MemoryScope, body: Mapping[str, Any]) -> bool:
    """Return whether URIs below viking://agent in a commit are those of this scope's agent."""
    return body.get("agent", scope.agent_name) == scope.agent_name


def _rewrite_commits(
    scope: MemoryScope, uris: Sequence[str], change: Callable[[bytes], bytes]
) -> None:
    """Rewrite the bodies of the commits that name one of these URIs."""
    for session, commit in scope.store.commits_naming(scope.user, uris):
        rewrite_commit(scope, session, commit, lambda record: change(record.body))


def rewrite_commit(
    scope: MemoryScope, session: UUID, commit: UUID, change: Callable[[CommitRecord], bytes]
) -> None:
    """Rewrite the body of a commit, unless it is gone; one that is being finished starts again."""

    def rewrite() -> None:
        record = scope.commit(commit)[1]
        body = change(record)
        if body != record.body or record.state == "open":
            put = PutCommit(commit, record.state, body, record.version)
            scope.store.write(scope.user, session, [put])

    with suppress(NotFoundError):  # deleted in the meantime with its session
        retry_on_conflict(rewrite, f"commit {commit}")


def _strip_body(
    scope: MemoryScope, is_kept: Callable[[str], bool], uris: Sequence[str], encoded: bytes
) -> bytes:
    """Return the body of a commit without references to removed files and quotations."""
    body: dict[str, Any] = loads(encoded)
    own, references = _is_by_agent(scope, body), set(map(scope.reference, uris))
    touched = {uri for uri in uris if own or scope.reference(uri) == uri}
    body |= {
        "diff": [
            {**change, "reason": ""} if _file_of(change["uri"]) in touched else change
            for change in body.get("diff", ())
            if _file_of(change["uri"]) not in touched or is_kept(change["uri"])
        ],
        "used": {
            uri: times
            for uri, times in body.get("used", {}).items()
            if uri not in references or is_kept(plain_uri(uri))
        },
    }
    decisions: list[dict[str, Any]] = body.get("digest", {}).get("decisions", [])
    if any(_file_of(decision["target"] or "") in touched for decision in decisions):
        del body["digest"]  # the commit extracts again from the remaining messages
    return dumps(body)


def exists(scope: MemoryScope, uri: str) -> bool:
    """Return whether a file, or the profile fact that a fragment names, still exists."""
    file = scope.file_at(_file_of(uri))
    fact_id = uri.partition("#")[2]
    return file is not None and (not fact_id or has_fact(file.latest, fact_id))


def _file_of(uri: str) -> str:
    """Return the URI of a file without the fragment that names a fact."""
    return uri.partition("#")[0]


def has_fact(version: VersionRecord, fact_id: str) -> bool:
    """Return whether a version of the profile has a line."""
    return any(fact.id == fact_id for fact in profile.load_facts(version.info))
