"""Every kind of item, event, part, field and reason in the types of the providers' SDKs.

The tables say what becomes of each kind; `sdk_kinds` reads the kinds from the installed SDKs, so
that a kind which a new version adds fails a test until it is listed here. `sample` makes an
example of a type with all of its fields set.

- back: kept, and sent back to its provider as it came
- text, reasoning: the same, and shown as text or as reasoning
- call: the same, and a call of a tool; its result has the form that belongs to it
- alone: kept, but its reply goes back as texts and calls, because nothing here can answer it
- detail: kept with the reply, and only about it: not sent back
- progress: tells that something is going on, and is repeated in an item: not kept
- usage: counted
- an outcome ("stop", "length", "refusal", "error", "tool_calls"): why the model stopped
- pause: the reply is continued at once
- fails: the run fails with the provider's words
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import anthropic.types as anthropic
import anthropic.types.beta as anthropic_beta
import openai.types.chat as chat
import openai.types.responses as responses
from pydantic import BaseModel


def _kinds(**rules: str) -> dict[str, str]:
    return {kind: rule for rule, kinds in rules.items() for kind in kinds.split()}


OPENAI_ITEMS = _kinds(
    text="message",
    reasoning="reasoning",
    call="function_call custom_tool_call local_shell_call shell_call apply_patch_call",
    alone="computer_call",
    back="""additional_tools apply_patch_call_output code_interpreter_call compaction
    computer_call_output custom_tool_call_output file_search_call function_call_output
    image_generation_call local_shell_call_output mcp_approval_request mcp_approval_response
    mcp_call mcp_list_tools program program_output shell_call_output tool_search_call
    tool_search_output web_search_call""",
)
OPENAI_EVENTS = _kinds(
    text="response.output_text.delta response.refusal.delta response.audio.transcript.delta",
    reasoning="response.reasoning_text.delta response.reasoning_summary_text.delta",
    call="response.function_call_arguments.delta",
    back="response.output_item.done",
    fails="error response.failed",
    stop="response.completed",
    length="response.incomplete",
    progress="""response.audio.delta response.audio.done response.audio.transcript.done
    response.code_interpreter_call.completed response.code_interpreter_call.in_progress
    response.code_interpreter_call.interpreting response.code_interpreter_call_code.delta
    response.code_interpreter_call_code.done response.compaction.compacting
    response.content_part.added response.content_part.done response.created
    response.custom_tool_call_input.delta response.custom_tool_call_input.done
    response.file_search_call.completed response.file_search_call.in_progress
    response.file_search_call.searching response.function_call_arguments.done
    response.image_generation_call.completed response.image_generation_call.generating
    response.image_generation_call.in_progress response.image_generation_call.partial_image
    response.in_progress response.mcp_call.completed response.mcp_call.failed
    response.mcp_call.in_progress response.mcp_call_arguments.delta
    response.mcp_call_arguments.done response.mcp_list_tools.completed
    response.mcp_list_tools.failed response.mcp_list_tools.in_progress
    response.output_item.added response.output_text.annotation.added response.output_text.done
    response.queued response.reasoning_summary_part.added response.reasoning_summary_part.done
    response.reasoning_summary_text.done response.reasoning_text.done response.refusal.done
    response.shell_call_command.added response.shell_call_command.delta
    response.shell_call_command.done response.shell_call_output_content.delta
    response.shell_call_output_content.done response.web_search_call.completed
    response.web_search_call.in_progress response.web_search_call.searching""",
)
OPENAI_PARTS = _kinds(text="output_text refusal reasoning_text")
OPENAI_ANNOTATIONS = _kinds(back="container_file_citation file_citation file_path url_citation")
OPENAI_REASONS = _kinds(refusal="content_filter", length="max_output_tokens max_messages steered")

ANTHROPIC_BLOCKS = _kinds(
    text="text",
    reasoning="thinking",
    call="tool_use",
    back="""advisor_tool_result bash_code_execution_tool_result code_execution_tool_result
    compaction container_upload fallback mcp_tool_listing mcp_tool_result mcp_tool_use
    redacted_thinking server_tool_use text_editor_code_execution_tool_result
    tool_search_tool_result web_fetch_tool_result web_search_tool_result""",
)
ANTHROPIC_EVENTS = _kinds(
    back="content_block_start content_block_delta message_start",
    progress="content_block_stop message_stop",
    stop="message_delta",
)
ANTHROPIC_DELTAS = _kinds(
    text="text_delta",
    reasoning="thinking_delta",
    call="input_json_delta",
    back="citations_delta compaction_delta signature_delta",
)
ANTHROPIC_CITATIONS = _kinds(
    back="""char_location content_block_location page_location search_result_location
    web_search_result_location"""
)
ANTHROPIC_REASONS = _kinds(
    stop="end_turn stop_sequence",
    length="max_tokens model_context_window_exceeded",
    tool_calls="tool_use",
    refusal="refusal",
    pause="pause_turn compaction",
)

CHAT_FIELDS = _kinds(
    text="content refusal audio",
    call="tool_calls function_call",
    detail="annotations",
    progress="role",
)
"""The fields of a message and of its deltas."""
CHAT_CHOICE = _kinds(
    text="message delta", stop="finish_reason", detail="logprobs", progress="index"
)
CHAT_CHUNK = _kinds(
    text="choices",
    usage="usage",
    detail="moderation",
    progress="id created model object service_tier system_fingerprint obfuscation metadata",
)
CHAT_REASONS = _kinds(
    stop="stop",
    length="length",
    tool_calls="tool_calls function_call",
    refusal="content_filter",
)
CHAT_CALLS = _kinds(call="function custom")

GOOGLE_PARTS = _kinds(
    text="text",
    reasoning="thought",
    call="functionCall",
    back="""audioTranscription codeExecutionResult executableCode fileData functionResponse
    inlineData mediaProcessing mediaResolution partMetadata speechMetadata thoughtSignature
    toolCall toolResponse videoMetadata""",
)
GOOGLE_CANDIDATE = _kinds(
    text="content",
    stop="finishReason",
    detail="""avgLogprobs citationMetadata finishMessage groundingMetadata logprobsResult
    safetyRatings urlContextMetadata""",
    progress="index tokenCount continuationToken",
)
GOOGLE_RESPONSE = _kinds(
    text="candidates",
    usage="usageMetadata",
    refusal="promptFeedback",
    progress="""automaticFunctionCallingHistory createTime modelStatus modelVersion parsed
    responseId sdkHttpResponse""",
)
GOOGLE_REASONS = _kinds(
    stop="FINISH_REASON_UNSPECIFIED STOP OTHER ESCALATION PUP_LIMITED_DISABLED",
    length="MAX_TOKENS CONTINUATION",
    refusal="""BLOCKLIST IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION IMAGE_SAFETY MODEL_ARMOR
    PROHIBITED_CONTENT RECITATION SAFETY SPII""",
    error="""IMAGE_OTHER LANGUAGE MALFORMED_FUNCTION_CALL MALFORMED_RESPONSE
    MISSING_THOUGHT_SIGNATURE NO_IMAGE TOO_MANY_TOOL_CALLS UNEXPECTED_TOOL_CALL""",
)

TABLES: Mapping[str, Mapping[str, str]] = {
    "openai items": OPENAI_ITEMS,
    "openai events": OPENAI_EVENTS,
    "openai parts": OPENAI_PARTS,
    "openai annotations": OPENAI_ANNOTATIONS,
    "openai reasons": OPENAI_REASONS,
    "anthropic blocks": ANTHROPIC_BLOCKS,
    "anthropic events": ANTHROPIC_EVENTS,
    "anthropic deltas": ANTHROPIC_DELTAS,
    "anthropic citations": ANTHROPIC_CITATIONS,
    "anthropic reasons": ANTHROPIC_REASONS,
    "chat fields": CHAT_FIELDS,
    "chat choice": CHAT_CHOICE,
    "chat chunk": CHAT_CHUNK,
    "chat reasons": CHAT_REASONS,
    "chat calls": CHAT_CALLS,
    "google parts": GOOGLE_PARTS,
    "google candidate": GOOGLE_CANDIDATE,
    "google response": GOOGLE_RESPONSE,
    "google reasons": GOOGLE_REASONS,
}


@cache
def sdk_kinds() -> Mapping[str, frozenset[str]]:
    """The kinds of each table in the installed SDKs."""
    from google.genai import types as google

    message = classes(responses.ResponseOutputMessage)[0].model_fields["content"].annotation
    text = responses.ResponseOutputText.model_fields["annotations"].annotation
    reasoning = responses.ResponseReasoningItem.model_fields["content"].annotation
    ended = responses.response.IncompleteDetails.model_fields["reason"].annotation
    chunk = chat.chat_completion_chunk
    return {
        "openai items": tags(responses.ResponseOutputItem),
        "openai events": tags(responses.ResponseStreamEvent),
        "openai parts": tags(message) | tags(reasoning),
        "openai annotations": tags(text),
        "openai reasons": literals(ended),
        "anthropic blocks": tags(anthropic.ContentBlock) | tags(anthropic_beta.BetaContentBlock),
        "anthropic events": tags(anthropic_beta.BetaRawMessageStreamEvent),
        "anthropic deltas": tags(anthropic_beta.BetaRawContentBlockDelta),
        "anthropic citations": tags(anthropic_beta.BetaTextCitation),
        "anthropic reasons": literals(anthropic_beta.BetaStopReason),
        "chat fields": names(chunk.ChoiceDelta) | names(chat.ChatCompletionMessage),
        "chat choice": names(chunk.Choice) | names(chat.chat_completion.Choice),
        "chat chunk": names(chat.ChatCompletionChunk) | names(chat.ChatCompletion),
        "chat reasons": literals(chunk.Choice.model_fields["finish_reason"].annotation),
        "chat calls": tags(chat.ChatCompletionMessageToolCallUnion),
        "google parts": names(google.Part),
        "google candidate": names(google.Candidate),
        "google response": names(google.GenerateContentResponse),
        "google reasons": frozenset(reason.value for reason in google.FinishReason),
    }


def classes(annotation: Any) -> list[type[BaseModel]]:
    """The models in an annotation, however deep in unions and lists."""
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return [annotation]
    parts = [part for part in get_args(annotation) if not isinstance(part, str | int)]
    return [one for part in parts for one in classes(part)]


def literals(annotation: Any) -> frozenset[str]:
    """The values of the literals in an annotation."""
    if get_origin(annotation) is Literal:
        return frozenset(map(str, get_args(annotation)))
    parts = [part for part in get_args(annotation) if not isinstance(part, str | int)]
    return frozenset(one for part in parts for one in literals(part))


def by_tag(annotation: Any) -> dict[str, type[BaseModel]]:
    """The models of a union by their `type`."""
    found = {}
    for model in classes(annotation):
        for tag in literals(model.model_fields["type"].annotation):
            found.setdefault(tag, model)
    return found


def tags(annotation: Any) -> frozenset[str]:
    return frozenset(by_tag(annotation))


def names(model: type[BaseModel]) -> frozenset[str]:
    """The names of the fields of a model in JSON."""
    return frozenset(field.alias or name for name, field in model.model_fields.items())


_VALUES: Mapping[str, Any] = {
    "status": "completed",
    "execution": "server",
    "signature": "U0lH",
    "thoughtSignature": "U0lH",
    "input": {"x": 1},
    "arguments": '{"x": 1}',
    "expires_at": 1,
}


def sample(annotation: Any, stack: tuple[Any, ...] = ()) -> Any:
    """An example of a type, with all fields set as far as it is not recursive."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return sample(args[0], stack)
    if origin is Literal:
        return args[0]
    if origin in (Union, UnionType):
        choices = [arg for arg in args if arg is not type(None) and arg not in stack]
        return sample(choices[0], stack) if choices else None
    if origin is list:
        return [] if args[0] in stack else [sample(args[0], stack)]
    if origin is dict or annotation is dict:
        return {"k": "v"}
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return dict(_fields(annotation, (*stack, annotation)))
    return _plain(annotation)


def _plain(annotation: Any) -> Any:
    if inspect.isclass(annotation) and issubclass(annotation, enum.Enum):
        return next(one.value for one in annotation if "UNSPECIFIED" not in one.name)
    return {str: "x", int: 1, float: 0.5, bool: True, bytes: "eA=="}.get(annotation, "x")


def _fields(model: type[BaseModel], stack: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        key = field.alias or name
        annotation = field.annotation
        value, allowed = _VALUES.get(key), literals(annotation)
        fits = isinstance(value, str) or annotation is not str
        if value is not None and fits and (not allowed or str(value) in allowed):
            yield key, value
        elif len(stack) < 6:
            yield key, sample(annotation, stack)


def rows(*tables: str) -> Iterable[tuple[str, str, str]]:
    """The rows of tables: the table, the kind and what becomes of it."""
    return [(table, kind, rule) for table in tables for kind, rule in TABLES[table].items()]
