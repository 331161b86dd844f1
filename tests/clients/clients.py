"""Clients of OpenAI's and Anthropic's APIs in Python, pointed at a server of ours.

    python clients.py URL CLIENT [CASE]

prints what the client did in each case, as one JSON object; `tests/server/test_clients.py` has the
cases. It runs in an environment that has the client, and imports nothing of ours.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from typing import Any

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADU"
    "lEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
KNOT = {
    "title": "Knot",
    "description": "A knot.",
    "type": "object",
    "properties": {"name": {"type": "string"}, "slips": {"type": "boolean"}},
    "required": ["name", "slips"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
# Of a model that is not there, and of texts at which the server's model fails.
FAILURES = (("none", "x"), ("sage", "too much"), ("sage", "too often"))
Cases = dict[str, Callable[[], Any]]


def weather(city: str) -> str:
    """The forecast.

    Args:
        city: Where to look.
    """
    return f"rain in {city}"


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def edited(last: str) -> list[dict[str, Any]]:
    return [user("three"), assistant("You said: three"), user(last)]


def statuses(ask: Callable[[str, str], Any]) -> list[Any]:
    """The class and the status of each failure."""

    def status(model: str, text: str) -> str | None:
        try:
            ask(model, text)
        except Exception as error:
            name = type(error).__name__
            while error.__cause__ is not None and not hasattr(error, "status_code"):
                error = error.__cause__  # pyright: ignore[reportAssignmentType]
            return f"{name} {getattr(error, 'status_code', error)}"

    return [status(*failure) for failure in FAILURES]


def first_of(pieces: Iterable[Any], text: Callable[[Any], str | None], close: Any) -> str:
    """The first text of a stream, which is closed then."""
    for piece in pieces:
        if found := text(piece):
            close()
            return found
    raise AssertionError("the stream has no text")


def chat_text(chunk: Any) -> str | None:
    return chunk.choices[0].delta.content if chunk.choices else None


def response_text(event: Any) -> str | None:
    return event.delta if event.type == "response.output_text.delta" else None


def openai_picture() -> list[dict[str, Any]]:
    url = {"url": f"data:image/png;base64,{PNG}"}
    return [user([{"type": "text", "text": "picture"}, {"type": "image_url", "image_url": url}])]


CHAT_TOOL = {
    "type": "function",
    "function": {"name": "weather", "description": "The forecast.", "parameters": CITY},
}
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "knot", "schema": KNOT}}


def chat_cases(create: Callable[..., Any], none: Callable[[str, str], Any] | None = None) -> Cases:
    """The cases of a client with chat completions; `create` takes messages and options."""

    def text(messages: list[Any], **more: Any) -> Any:
        return create(messages, **more).choices[0].message.content

    def tools() -> Any:
        messages: list[Any] = [user("weather")]
        first = create(messages, tools=[CHAT_TOOL]).choices[0].message
        messages.append(first)
        for call in first.tool_calls:
            result = weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return text(messages, tools=[CHAT_TOOL])

    def edit() -> Any:
        text(edited("four"))
        return text(edited("five"))

    def cancel() -> str:
        stream = create([user("long")], stream=True)
        return first_of(stream, chat_text, getattr(stream, "close", lambda: None))

    return {
        "plain": lambda: text([user("one")]),
        "stream": lambda: "".join(
            chat_text(one) or "" for one in create([user("two")], stream=True)
        ),
        "tools": tools,
        "schema": lambda: json.loads(text([user("schema")], response_format=SCHEMA_FORMAT)),
        "picture": lambda: text(openai_picture()),
        "edit": edit,
        "cancel": cancel,
        "errors": lambda: statuses(lambda model, words: create([user(words)], model=model)),
    }


def of_openai(url: str) -> Cases:
    from openai import OpenAI

    create = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0).chat.completions.create
    return chat_cases(
        lambda messages, **more: create(**{"model": "sage", "messages": messages, **more})
    )


def of_responses(url: str) -> Cases:
    from openai import OpenAI

    client: Any = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    return response_cases(
        lambda input, **more: client.responses.create(**{"model": "sage", "input": input, **more})
    )


def response_cases(create: Callable[..., Any]) -> Cases:
    """The cases of a client with responses; `create` takes an input and options."""
    tool = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}

    def tools() -> Any:
        first = create("weather", tools=[tool])
        outputs = [
            {
                "type": "function_call_output",
                "call_id": call.call_id,
                "output": weather(**json.loads(call.arguments)),
            }
            for call in first.output
        ]
        return create(outputs, tools=[tool], previous_response_id=first.id).output_text

    def edit() -> Any:
        first = create("three")
        create("four", previous_response_id=first.id)
        return create("five", previous_response_id=first.id).output_text

    def cancel() -> str:
        stream = create("long", stream=True)
        close = getattr(stream, "close", None) or stream.response.close  # LiteLLM has no close()
        return first_of(stream, response_text, close)

    format = {"format": {"type": "json_schema", "name": "knot", "schema": KNOT}}
    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    picture = [user([{"type": "input_text", "text": "picture"}, image])]
    return {
        "plain": lambda: create("one").output_text,
        "stream": lambda: "".join(response_text(one) or "" for one in create("two", stream=True)),
        "tools": tools,
        "schema": lambda: json.loads(create("schema", text=format).output_text),
        "picture": lambda: create(picture).output_text,
        "edit": edit,
        "cancel": cancel,
        "errors": lambda: statuses(lambda model, words: create(words, model=model)),
    }


def of_anthropic(url: str) -> Cases:
    from anthropic import Anthropic, beta_tool

    client: Any = Anthropic(base_url=url, api_key="none", max_retries=0)
    base = {"model": "sage", "max_tokens": 4000}

    def create(messages: list[Any], **more: Any) -> Any:
        return client.messages.create(**{**base, "messages": messages, **more})

    def text(messages: list[Any], **more: Any) -> str:
        return create(messages, **more).content[0].text

    def stream() -> str:
        with client.messages.stream(**base, messages=[user("two")]) as events:
            return "".join(events.text_stream)

    def tools() -> str:
        more = {"tools": [beta_tool(weather)], "messages": [user("weather")]}
        runner = client.beta.messages.tool_runner(**base, **more)
        return runner.until_done().content[0].text

    def thinking() -> list[str]:
        more = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
        first = create([user("think")], **more)
        history = [user("think"), assistant(first.content), user("six")]
        return [first.content[0].thinking, text(history, **more)]

    def edit() -> str:
        text(edited("four"))
        return text(edited("five"))

    def cancel() -> str:
        with client.messages.stream(**base, messages=[user("long")]) as events:
            return first_of(events.text_stream, str, events.close)

    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    picture = [user([{"type": "text", "text": "picture"}, {"type": "image", "source": source}])]
    format = {"format": {"type": "json_schema", "schema": KNOT}}
    return {
        "plain": lambda: text([user("one")]),
        "stream": stream,
        "tools": tools,
        "schema": lambda: json.loads(text([user("schema")], output_config=format)),
        "picture": lambda: text(picture),
        "thinking": thinking,
        "edit": edit,
        "cancel": cancel,
        "errors": lambda: statuses(lambda model, words: create([user(words)], model=model)),
    }


def of_langchain(model: Callable[[str], Any]) -> Cases:
    from langchain_core import messages
    from langchain_core.tools import tool

    sage, forecast = model("sage"), tool(weather)

    def tools() -> str:
        history: list[Any] = [messages.HumanMessage("weather")]
        bound = sage.bind_tools([forecast])
        history.append(bound.invoke(history))
        history += [forecast.invoke(call) for call in history[1].tool_calls]
        return bound.invoke(history).text

    def again() -> str:
        first = sage.invoke("think")
        return sage.invoke([messages.HumanMessage("think"), first, user("six")]).text

    def edit() -> str:
        sage.invoke(edited("four"))
        return sage.invoke(edited("five")).text

    def cancel() -> str:
        stream = sage.stream("long")
        return first_of(stream, lambda chunk: chunk.text, stream.close)

    image = {"type": "image", "base64": PNG, "mime_type": "image/png"}
    picture = [messages.HumanMessage([{"type": "text", "text": "picture"}, image])]
    return {
        "plain": lambda: sage.invoke("one").text,
        "stream": lambda: "".join(chunk.text for chunk in sage.stream("two")),
        "tools": tools,
        "schema": lambda: sage.with_structured_output(KNOT, method="json_schema").invoke("schema"),
        "picture": lambda: sage.invoke(picture).text,
        "again": again,
        "edit": edit,
        "cancel": cancel,
        "errors": lambda: statuses(lambda name, words: model(name).invoke(words)),
    }


def of_langchain_openai(url: str, **more: Any) -> Cases:
    from langchain_openai import ChatOpenAI

    given = {"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0, **more}
    return of_langchain(lambda name: ChatOpenAI(model=name, **given))  # pyright: ignore[reportArgumentType]


def of_langchain_anthropic(url: str) -> Cases:
    from langchain_anthropic import ChatAnthropic

    given: dict[str, Any] = {"base_url": url, "api_key": "none", "max_retries": 0}
    return of_langchain(lambda name: ChatAnthropic(model=name, **given))  # pyright: ignore[reportCallIssue]


def of_litellm(url: str, provider: str) -> Cases:
    import litellm

    base = f"{url}/v1" if provider == "openai" else url

    def create(messages: list[Any], model: str = "sage", **more: Any) -> Any:
        return litellm.completion(
            f"{provider}/{model}",
            [
                message if isinstance(message, dict) else message.model_dump()
                for message in messages
            ],
            api_base=base,
            api_key="none",
            num_retries=0,
            **more,
        )

    return chat_cases(create)


def of_litellm_responses(url: str) -> Cases:
    import litellm

    # It does not stream models that it does not know.
    litellm.register_model(
        {"openai/sage": {"supports_native_streaming": True, "litellm_provider": "openai"}}
    )

    def create(input: Any, model: str = "sage", **more: Any) -> Any:
        given = {"api_base": f"{url}/v1", "api_key": "none", "num_retries": 0, **more}
        return litellm.responses(input=input, model=f"openai/{model}", **given)

    return response_cases(create)


def of_instructor(url: str) -> Cases:
    import instructor  # pyright: ignore[reportMissingImports]
    from instructor import Mode  # pyright: ignore[reportMissingImports]
    from openai import OpenAI
    from pydantic import BaseModel

    class Knot(BaseModel):
        name: str
        slips: bool

    class Weather(BaseModel):
        """The forecast."""

        city: str

    openai = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

    def ask(kind: Any, content: Any, mode: Any = Mode.JSON_SCHEMA, **more: Any) -> Any:
        client: Any = instructor.from_openai(openai, mode=mode)
        given = {"model": "sage", "max_retries": 0, **more}
        return client.create(response_model=kind, messages=[user(content)], **given)

    def stream() -> Any:
        client: Any = instructor.from_openai(openai, mode=Mode.JSON_SCHEMA)
        parts = client.create_partial(
            response_model=Knot, model="sage", messages=[user("schema streamed")]
        )
        return [part.model_dump() for part in parts][-1]

    def tools() -> Any:
        from collections.abc import Iterable as Many

        found = ask(Many[Weather], "weather", Mode.PARALLEL_TOOLS, tool_choice="auto")
        return [one.model_dump() for one in found]

    def edit() -> Any:
        client: Any = instructor.from_openai(openai, mode=Mode.JSON_SCHEMA)
        histories = [[user("knot"), assistant("Which?"), user(f"schema {n}")] for n in "ab"]
        given: dict[str, Any] = {"response_model": Knot, "model": "sage", "max_retries": 0}
        return [client.create(messages=one, **given).model_dump() for one in histories][-1]

    picture = [
        "schema of this picture",
        instructor.Image.from_base64(f"data:image/png;base64,{PNG}"),
    ]
    return {
        "plain": lambda: ask(Knot, "schema by a tool", Mode.TOOLS).model_dump(),
        "stream": stream,
        "tools": tools,
        "schema": lambda: ask(Knot, "schema").model_dump(),
        "picture": lambda: ask(Knot, picture).model_dump(),
        "edit": edit,
        "errors": lambda: statuses(lambda model, words: ask(Knot, words, model=model)),
    }


def of_llm(url: str) -> Cases:
    import llm  # pyright: ignore[reportMissingImports]
    from llm.default_plugins.openai_models import Chat  # pyright: ignore[reportMissingImports]

    def model(name: str) -> Any:
        capabilities = {"vision": True, "supports_tools": True, "supports_schema": True}
        found = Chat(name, model_name=name, api_base=f"{url}/v1", **capabilities)
        found.key = "none"
        return found

    sage = model("sage")

    def edit() -> str:
        texts: list[str] = []
        for last in ("four", "five"):
            conversation = sage.conversation()
            conversation.prompt("three").text()
            texts.append(conversation.prompt(last).text())
        return texts[-1]

    def cancel() -> str:
        response = iter(sage.prompt("long", stream=True))
        return first_of(response, str, response.close)

    def picture() -> str:
        from base64 import b64decode

        image = llm.Attachment(type="image/png", content=b64decode(PNG))
        return sage.prompt("picture", attachments=[image], stream=False).text()

    return {
        "plain": lambda: sage.prompt("one", stream=False).text(),
        "stream": lambda: "".join(sage.prompt("two", stream=True)),
        "tools": lambda: sage.conversation(tools=[weather]).chain("weather", stream=False).text(),
        "schema": lambda: json.loads(sage.prompt("schema", schema=KNOT, stream=False).text()),
        "picture": picture,
        "edit": edit,
        "cancel": cancel,
        "errors": lambda: statuses(
            lambda name, words: model(name).prompt(words, stream=False).text()
        ),
    }


def of_agents(url: str, kind: str) -> Cases:
    import agents
    from openai import AsyncOpenAI

    agents.set_tracing_disabled(True)

    async def run(input: Any, model: str = "sage", tools: Any = (), **more: Any) -> Any:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as openai:
            agent = agents.Agent(
                name="Sage", model=getattr(agents, kind)(model, openai), tools=list(tools), **more
            )
            return await agents.Runner.run(agent, input)

    async def streamed(input: str, *, cancels: bool = False) -> str:
        async with AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as openai:
            model = getattr(agents, kind)("sage", openai)
            result = agents.Runner.run_streamed(agents.Agent(name="Sage", model=model), input)
            text = ""
            async for event in result.stream_events():
                if event.type == "raw_response_event":
                    text += response_text(event.data) or ""
                if text and cancels:
                    result.cancel()
                    break
            return text

    def say(input: Any, *args: Any, **more: Any) -> Any:
        return asyncio.run(run(input, *args, **more)).final_output

    def again() -> Any:
        first = asyncio.run(run("think"))
        return say([*first.to_input_list(), user("six")])

    def edit() -> Any:
        first = asyncio.run(run("three")).to_input_list()
        say([*first, user("four")])
        return say([*first, user("five")])

    def schema() -> Any:
        from pydantic import create_model

        return say("schema", output_type=create_model("Knot", name=str, slips=bool)).model_dump()

    image = {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"}
    picture = [user([{"type": "input_text", "text": "picture"}, image])]
    return {
        "plain": lambda: say("one"),
        "stream": lambda: asyncio.run(streamed("two")),
        "tools": lambda: say("weather", tools=[agents.function_tool(weather)]),
        "schema": schema,
        "picture": lambda: say(picture),
        "again": again,
        "edit": edit,
        "cancel": lambda: asyncio.run(streamed("long", cancels=True)),
        "errors": lambda: statuses(lambda model, words: say(words, model)),
    }


CLIENTS: dict[str, Callable[[str], Cases]] = {
    "openai": of_openai,
    "openai responses": of_responses,
    "anthropic": of_anthropic,
    "langchain openai": of_langchain_openai,
    "langchain responses": lambda url: of_langchain_openai(url, use_responses_api=True),
    "langchain anthropic": of_langchain_anthropic,
    "litellm openai": lambda url: of_litellm(url, "openai"),
    "litellm anthropic": lambda url: of_litellm(url, "anthropic"),
    "litellm responses": of_litellm_responses,
    "agents responses": lambda url: of_agents(url, "OpenAIResponsesModel"),
    "agents chat completions": lambda url: of_agents(url, "OpenAIChatCompletionsModel"),
    "instructor": of_instructor,
    "llm": of_llm,
}


def main(url: str, names: list[str], case: str | None) -> None:
    warnings.simplefilter("ignore")
    did: dict[str, dict[str, Any]] = {}
    for name in names:
        cases = CLIENTS[name](url)
        did[name] = {}
        for feature, use in cases.items():
            if case in (None, feature):
                try:
                    did[name][feature] = use()
                except Exception:
                    did[name][feature] = traceback.format_exc()
    print(json.dumps(did))


if __name__ == "__main__":
    os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "true"
    main(sys.argv[1], sys.argv[2].split(","), sys.argv[3] if len(sys.argv) > 3 else None)
