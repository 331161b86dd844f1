"""Events: the numbered steps of a run, as `conversation.events()` and observers receive them.

    from sennit.events import TextAdded, ToolCompleted

    for event in chat.events("Hello"):
        match event:
            case TextAdded():
                print(event.text, end="")
            case ToolCompleted():
                print(event.message.text)
            case _:
                pass

`AnyEvent` is the union of them, which type checkers narrow.
"""

from sennit.turns.events import (
    AnyEvent,
    ApprovalDecided,
    ApprovalRequired,
    ContextAdded,
    DraftDropped,
    Event,
    HistoryReplaced,
    Injection,
    MessageCompleted,
    MessageInterjected,
    MessageQueued,
    PromptChanged,
    ReasoningAdded,
    RunEnded,
    RunStarted,
    TextAdded,
    ToolCalled,
    ToolCompleted,
    ToolResultBuffered,
    ToolStarted,
    TurnStarted,
    WarningIssued,
)

__all__ = [
    "AnyEvent",
    "ApprovalDecided",
    "ApprovalRequired",
    "ContextAdded",
    "DraftDropped",
    "Event",
    "HistoryReplaced",
    "Injection",
    "MessageCompleted",
    "MessageInterjected",
    "MessageQueued",
    "PromptChanged",
    "ReasoningAdded",
    "RunEnded",
    "RunStarted",
    "TextAdded",
    "ToolCalled",
    "ToolCompleted",
    "ToolResultBuffered",
    "ToolStarted",
    "TurnStarted",
    "WarningIssued",
]
