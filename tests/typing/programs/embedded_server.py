"""The server inside a FastAPI application, with a model and a tool of the program."""

from pathlib import Path

from fastapi import FastAPI

from sennit import Tool, iModel
from sennit.server import Server, ServerSettings, create_app, listen


def knots(name: str) -> str:
    """How a knot is tied."""
    return f"{name}: over, under and through"


def application(store: Path) -> FastAPI:
    settings = ServerSettings(
        url=store, models=(iModel("openai:gpt-5", name="sage"),), tools=(Tool(knots, timeout=5),)
    )
    app = FastAPI()
    app.mount("/sennit", create_app(settings))
    return app


def serve(store: Path) -> None:
    settings = ServerSettings(url=store, port=8765)
    Server(create_app(settings), settings).run(sockets=[listen(settings)])


if __name__ == "__main__":
    print(application(Path("chats.db")).title)
    serve(Path("chats.db"))
