"""`sennit chat`: a stored conversation with any model.

On a terminal it is a line editor with commands; otherwise it reads lines and prints answers. The
chat itself is imported when the command runs, because its packages are large.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sennit.cli import quiet_interrupts, sign_of_life
from sennit.cli.targets import (
    AskOption,
    BaseUrlOption,
    BranchOption,
    McpOption,
    MemoryOption,
    ModelArgument,
    StoreOption,
    ToolOption,
    session_names,
)

TINY = (
    "The embedded model (SmolLM2-135M) runs on this machine, without an API key. It is tiny: it "
    "gets facts wrong and makes things up."
)
BETTER = (
    "For better answers use --model openai:gpt-5 (with OPENAI_API_KEY set) or --model "
    'ollama:llama3.2; with make: make chat ARGS="--model …".'
)


def chat(
    session: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Session; an existing one is continued.",
            autocompletion=session_names,
        ),
    ] = "chat",
    model: ModelArgument = "local",
    base_url: BaseUrlOption = None,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="System message.")] = None,
    branch: BranchOption = None,
    tool: ToolOption = None,
    mcp: McpOption = None,
    ask: AskOption = None,
    memory: MemoryOption = True,
    other_sessions: Annotated[
        bool,
        typer.Option(
            "--other-sessions", help="Add relevant messages of other sessions to the prompt."
        ),
    ] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Extract memories when the chat ends.")
    ] = False,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Maximum answer length in tokens.")
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(min=0, max=2, metavar="N", help="Sampling temperature, 0 to 2."),
    ] = None,
    store: StoreOption = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print one line of JSON per answer; only with piped input."),
    ] = False,
) -> None:
    """Chat with a model; with piped input, answer each line."""
    with quiet_interrupts(), sign_of_life():
        from sennit.api.open import open as open_client
        from sennit.cli.chat.options import chat_options
        from sennit.cli.chat.run import run
        from sennit.memory.retrieval.minilm import installed_embedder

    options = chat_options(
        model,
        base_url=base_url,
        tool=tool,
        mcp=mcp,
        ask=ask,
        use_memory=memory,
        other_sessions=other_sessions,
        max_tokens=max_tokens,
        temperature=temperature,
    )
    with open_client(store, embedder=installed_embedder()) as client:
        code = run(client, options, session, branch, system=system, as_json=as_json, commit=commit)
    raise typer.Exit(code)
