"""The context measure: all evidence inside `session.context`, beside `find` in the same budget."""

from __future__ import annotations

from benchmarks.retrieval.conversations import Conversation
from sennit import Client
from sennit.services.models.usage import tokens_of_chars

BUDGET = 2_000
_FIND_LIMIT = 60


def context_share(
    client: Client, conversation: Conversation, names: dict[str, str]
) -> dict[str, float]:
    """Return the shares of questions with all evidence inside, and of the budget that is used."""
    texts = {turn.name: turn.text for turn in conversation.turns}
    session = client.session(f"{conversation.name}_question")
    inside, filled, used = [], [], []
    for question in conversation.questions:
        if not question.evidence:
            continue
        context = session.context(
            budget_tokens=BUDGET, query=question.text, record=False, other_sessions=True
        )
        used.append(context.tokens / BUDGET)
        inside.append(all(texts[name] in context.text for name in question.evidence))
        filled.append(question.evidence <= _filled(client, question.text, texts, names))
    return {
        "inside": sum(inside) / len(inside),
        "inside find": sum(filled) / len(filled),
        "used": sum(used) / len(used),
    }


def _filled(
    client: Client, question: str, texts: dict[str, str], names: dict[str, str]
) -> set[str]:
    """Return the turns of the results of `find` that fit the budget, as whole messages."""
    budget, inside = BUDGET, set[str]()
    for match in client.find(question, limit=_FIND_LIMIT):
        name = names[str(match.evidence[0].message)]
        tokens = tokens_of_chars(len(texts[name]))
        if tokens <= budget:
            budget -= tokens
            inside.add(name)
    return inside
