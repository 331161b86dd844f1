"""Attachments of stored messages: their bytes are stored once, apart from the messages."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest

import sennit
from sennit import (
    AudioPart,
    Client,
    FilePart,
    ImagePart,
    InstructionContent,
    Message,
    MessageRole,
    NotFoundError,
    OpaqueContent,
    Session,
    StoreError,
    TextPart,
    ToolPart,
    ValidationError,
    clock,
)
from sennit.learning.export import ExportOptions
from sennit.messages.blob_reference import MIN_BLOB_BYTES, without_bytes
from sennit.sessions.repository import repository_of
from sennit.testing import ScriptedModel
from sennit.turns.special.definition import PersistenceStrategy, SpecialTurn

pytest_plugins = ("tests.durable",)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 1_000
URL = f"data:image/png;base64,{b64encode(PNG).decode()}"
SMALL = b"\x89PNG\r\n\x1a\n" + bytes(MIN_BLOB_BYTES - 9)


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with sennit.open(address) as client:
        yield client


def picture(text: str = "look", image: str | bytes = PNG) -> Message:
    return Message(InstructionContent.create(text, images=[ImagePart(image).url]))


def images(message: Message) -> list[str]:
    assert isinstance(message.content, InstructionContent)
    return list(message.content.images or ())


def body(session: Session, message: Message) -> bytes:
    stored = repository_of(session).stored()
    return stored.store.messages(stored.owner, session.id, [message.id])[0].body


def test_a_stored_message_names_its_picture_and_the_bytes_are_stored_once(client: Client) -> None:
    session = client.session("chat")
    group = session.add_message("user", [TextPart("look"), ImagePart(PNG), ImagePart(PNG)])
    [first, second] = [message for message in group.messages if images(message)][-1:] * 2
    assert images(first) == [without_bytes(URL)] * 2
    assert images(session.messages.get(second.id)) == images(first)
    assert [part.url for part in group.parts if isinstance(part, ImagePart)] == images(first)
    assert len(body(session, first)) < 600
    stored = repository_of(session).stored()
    assert stored.store.blob_bytes(stored.owner) == len(PNG)


def test_sync_and_async_writes_fork_edit_and_reopen_keep_the_picture(
    client: Client, address: str
) -> None:
    session = client.session("chat")
    sent = session.add_message(picture(), branches=session.default_branch)

    async def write() -> Message:
        added = await session.aadd_message(picture("again"), branches=session.default_branch)
        await session.aadd_messages([picture("third")], branches=session.default_branch)
        return added

    added = asyncio.run(write())
    assert images(added) == images(sent) == [without_bytes(URL)]
    edited = session.default_branch.edit(0, "look here")
    assert images(edited.messages[0]) == images(sent)
    fork = session.fork("main", name="fork")
    with sennit.open(address) as other:
        again = other.session("chat")
        assert [images(message) for message in again.get_branch("fork").messages] == [
            images(sent)
        ] * 3
        assert again.read_blob(images(again.get_branch("fork").messages[0])[0]) == PNG
    assert len(fork) == 3
    stored = repository_of(session).stored()
    assert stored.store.blob_bytes(stored.owner) == len(PNG)


def test_a_small_picture_and_an_address_stay_in_the_message(client: Client) -> None:
    session = client.session("chat")
    message = session.add_message(
        Message(InstructionContent(images=[ImagePart(SMALL).url, "https://example.com/a.png"]))
    )
    assert images(message)[0].startswith("data:")
    assert images(message)[1] == "https://example.com/a.png"


def test_a_message_with_bytes_is_the_stored_one_when_it_is_added_again(client: Client) -> None:
    session, message = client.session("chat"), picture()
    stored = session.add_message(message)
    assert session.add_message(message, branches=session.default_branch) is stored
    assert images(session.default_branch.messages[0]) == [without_bytes(URL)]
    other = client.session("other")
    assert images(other.add_message(message)) == [without_bytes(URL)]


def test_the_model_is_sent_the_bytes_that_it_would_be_sent_without_a_store(client: Client) -> None:
    prompts: list[str] = []
    for session in (client.session("chat"), Session()):
        model = ScriptedModel(["a cat", "a dog"], name="eye")
        talk = session.conversation(model=model)
        talk.say(picture()).raise_for_error()
        talk.say("and now?").raise_for_error()
        prompts.append(json.dumps([list(request.messages) for request in model.requests]))
    assert prompts[0] == prompts[1]
    assert URL in prompts[0]


def test_operations_and_service_calls_send_the_bytes_too(client: Client) -> None:
    session = client.session("chat")
    model = ScriptedModel(["one", "two", "three", "four"], name="eye")
    session.services.register(model)
    session.default_branch.grant(resources={"eye"})
    session.add_message(picture(), branches=session.default_branch)

    session.request_sync("eye", messages=session.default_branch.messages)
    for operation in ("generate", "communicate"):
        params = {"imodel": "eye"} | ({"instruction": "?"} if operation == "communicate" else {})
        session.conduct_sync(branch="main", operation=operation, params=params).invoke_sync()
    special = SpecialTurn(instruction="Name it.", strategy=PersistenceStrategy.EPHEMERAL)
    talk = session.conversation(model=model)
    talk.execute_special_turn_sync(special).raise_for_error()
    assert len(model.requests) == 4
    for request in model.requests:
        assert URL in json.dumps(list(request.messages))


def test_a_blob_is_read_in_pieces(client: Client) -> None:
    session = client.session("chat")
    data = bytes(range(256)) * 20_000
    blob = session.put_blob((data[at : at + 100_000] for at in range(0, len(data), 100_000)), "a/b")
    assert (blob.size, blob.media_type) == (len(data), "a/b")
    assert b"".join(session.open_blob(blob.reference)) == data
    assert session.read_blob(blob.reference, 1_000_000, 5) == data[1_000_000:1_000_005]
    assert session.read_blob(blob.reference.partition("?")[0], len(data)) == b""

    async def read() -> tuple[bytes, list[int]]:
        again = await session.aput_blob(data, "a/b")
        pieces = [piece async for piece in await session.aopen_blob(again.reference)]
        return await session.aread_blob(blob.reference), list(map(len, pieces))

    whole, sizes = asyncio.run(read())
    assert whole == data
    assert sum(sizes) == len(data)
    assert max(sizes) <= 2**20


def test_another_user_never_reads_a_blob_by_its_hash(client: Client, address: str) -> None:
    mine = client.session("chat")
    blob = mine.put_blob(PNG, "image/png")
    for user, tenant in (("eve", "default"), ("default", "else")):
        with sennit.open(address, user=user, tenant=tenant) as stranger:
            theirs = stranger.session("chat")
            with pytest.raises(NotFoundError, match="no blob"):
                theirs.read_blob(blob.reference)
            with pytest.raises(NotFoundError, match="no blob"):
                theirs.add_message("user", [TextPart("mine"), ImagePart(blob.reference)])
            assert not theirs.messages
            with pytest.raises(NotFoundError, match="no blob"):
                asyncio.run(theirs.aadd_message(picture("x", blob.reference)))
            assert not theirs.messages


def test_the_text_of_a_reference_in_a_chat_is_text(client: Client, address: str) -> None:
    reference = client.session("chat").put_blob(PNG, "image/png").reference
    for user in ("default", "eve"):
        with sennit.open(address, user=user) as anyone:
            session = anyone.session("texts")
            model = ScriptedModel(["I see no picture.", "None."], name="eye")
            talk = session.conversation(model=model)
            talk.say(reference).raise_for_error()
            talk.say(picture(reference, SMALL)).raise_for_error()
            prompt = json.dumps([list(request.messages) for request in model.requests])
            assert reference in prompt
            assert URL not in prompt
            assert session.default_branch.messages[0].text == reference


def test_the_type_and_size_of_a_reference_are_those_of_the_blob(client: Client) -> None:
    session = client.session("chat")
    blob = session.put_blob(PNG, "image/png")
    name = blob.reference.partition("?")[0]
    for said in (name, f"{name}?type=image/gif&size=1"):
        assert images(session.add_message(picture("x", said))) == [blob.reference]
    page = session.put_blob(b"<script>", "text/html").reference.partition("?")[0]
    with pytest.raises(ValidationError, match="is no image"):
        session.add_message(picture("x", f"{page}?type=image/png&size=8"))


def test_a_session_without_a_store_keeps_the_bytes(client: Client) -> None:
    session = Session()
    assert images(session.add_message(picture())) == [URL]
    stored = client.session("chat").add_message(picture())
    with pytest.raises(NotFoundError, match="without a store"):
        session.add_message(stored)
    for call in (session.open_blob, session.read_blob):
        with pytest.raises(StoreError, match="without a store"):
            call(images(stored)[0])


@pytest.mark.parametrize("reference", ["", "data:image/png;base64,AA==", "sennit-blob:sha256:ab"])
def test_what_is_no_reference_is_refused_in_words(reference: str) -> None:
    with sennit.open(":memory:") as client, pytest.raises(ValidationError, match="64 hexadecimal"):
        client.session("chat").open_blob(reference)


def test_search_and_titles_leave_the_bytes_out(client: Client) -> None:
    session = client.session("chat")
    session.add_message(picture("a heron by the lake"), branches=session.default_branch)
    [hit] = client.search_messages("heron")
    assert "base64" not in hit.snippet
    assert session.title == "a heron by the lake"
    assert not client.search_messages("sennit")


def test_a_run_on_a_damaged_blob_ends_with_an_error_that_says_so(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("chat")
        model = ScriptedModel(["never"], name="eye")
        session.add_message(picture(), branches=session.default_branch)
        damage(tmp_path / "a.db")
        result = session.conversation(model=model).run()
        assert "damaged" in str(result.notices)
        assert not model.requests
        with pytest.raises(StoreError, match=r"damaged.*sennit doctor"):
            session.read_blob(without_bytes(URL))


def test_a_run_with_a_blob_of_another_user_is_refused_and_stores_nothing(client: Client) -> None:
    session = client.session("chat")
    reference = without_bytes(URL)
    model = ScriptedModel(["never"], name="eye")
    result = session.conversation(model=model).say(picture("x", reference))
    assert "no blob" in str(result.notices)
    assert not model.requests
    assert not session.default_branch


def damage(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE blob_chunks SET bytes = zeroblob(length(bytes)) WHERE pos = 0")


WAV = b"RIFF" + (4036).to_bytes(4, "little") + b"WAVEfmt " + bytes(4_030)


def test_files_and_recordings_are_stored_and_sent_as_pictures_are(client: Client) -> None:
    text = "a line of text\n" * 500
    parts = [TextPart("read"), FilePart(text.encode(), "notes.txt"), AudioPart(WAV)]
    prompts: list[str] = []
    for session in (client.session("chat"), Session()):
        group = session.add_message("user", parts)
        model = ScriptedModel(["done"], name="eye")
        session.conversation(model=model).run().raise_for_error()
        prompts.append(json.dumps([list(request.messages) for request in model.requests]))
        file, recording = group.parts[1:]
        assert isinstance(file, FilePart)
        assert isinstance(recording, AudioPart)
        assert (file.name, file.media_type) == ("notes.txt", "text/plain")
        assert recording.media_type == "audio/wav"
    assert prompts[0] == prompts[1]
    assert b64encode(WAV).decode() in prompts[0]
    session = client.session("chat")
    urls = [url for message in session.messages for url in message.content.attachment_urls]
    assert [session.read_blob(url) for url in urls] == [text.encode(), WAV]


def test_the_files_of_a_tool_result_are_blobs_and_reach_the_model(client: Client) -> None:
    prompts: list[str] = []
    for session in (client.session("chat"), Session()):
        session.add_message("user", "draw")
        session.add_message(
            "assistant",
            [ToolPart("draw", {}, output="drawn", tool_id="call_1", files=(ImagePart(PNG),))],
            session.default_branch,
        )
        model = ScriptedModel(["done"], name="eye")
        session.conversation(model=model).run().raise_for_error()
        prompts.append(json.dumps(list(model.requests[-1].messages)))
    assert prompts[0] == prompts[1]
    assert URL in prompts[0]
    session = client.session("chat")
    urls = [url for message in session.messages for url in message.content.attachment_urls]
    assert urls == [without_bytes(URL)]


def test_a_recording_that_names_a_blob_of_another_type_is_refused(client: Client) -> None:
    session = client.session("chat")
    name = session.put_blob(b"<script>" * 500, "text/html").reference.partition("?")[0]
    with pytest.raises(ValidationError, match="media type of a recording"):
        session.add_message("user", [AudioPart(name, "audio/wav")])
    assert not session.messages


@pytest.mark.parametrize("format", ["openai", "sharegpt"])
def test_training_data_has_the_bytes(tmp_path: Path, format: str) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("chat")
        session.add_message(picture(), branches=session.default_branch)
        for text, score in (("a cat", 1.0), ("a dog", 0.0)):
            branch = session.fork("main", at=0)
            session.add_message("assistant", text, branch)
            session.label(branch.messages[-1], score)
        client.export_training(tmp_path / "data.jsonl", ExportOptions(format=format))
    assert URL in (tmp_path / "data.jsonl").read_text()


def test_closing_a_client_collects_what_was_uploaded_a_day_ago_and_never_named(
    address: str,
) -> None:
    with sennit.open(address) as client:
        client.session("chat").add_message(picture())
        client.session("chat").put_blob(b"never named", "text/plain")
    with clock.wall_clock_from(lambda: time.time_ns() + 25 * 3_600 * 10**9):
        sennit.open(address).close()
    with sennit.open(address) as client:
        assert client._store.blob_bytes(client._owner) == len(PNG)


def test_forgetting_a_user_erases_what_was_uploaded_and_never_named(address: str) -> None:
    with sennit.open(address, user="ada") as ada, sennit.open(address, user="bob") as bob:
        for client in (ada, bob):
            client.session("chat").add_message(picture())
            client.session("chat").put_blob(b"never named", "text/plain")
        ada.forget(user="ada")
        assert ada._store.blob_bytes(ada._owner) == 0
        assert bob._store.blob_bytes(bob._owner) == len(PNG) + len(b"never named")
    if Path(address).exists():
        assert Path(address).read_bytes().count(b"never named") == 1


def test_a_stored_output_that_is_missing_is_refused_and_an_export_works(
    client: Client, tmp_path: Path
) -> None:
    session = client.session("chat")
    session.add_message("user", "hello")
    missing = {"stored_output": f"sennit-blob:sha256:{'0' * 64}"}
    message = Message(InstructionContent.create("look"), metadata=missing)
    with pytest.raises(NotFoundError, match="no blob"):
        session.add_message(message)
    with pytest.raises(NotFoundError, match="no blob"):
        asyncio.run(session.aadd_message(message))
    kept = {"stored_output": session.put_blob(PNG, "image/png").reference}
    session.add_message(Message(InstructionContent.create("look"), metadata=kept))
    assert client.export(tmp_path / "archive").messages == 2


def test_a_content_of_an_undefined_type_keeps_its_blobs(client: Client) -> None:
    session = client.session("chat")
    reference = session.put_blob(PNG, "image/png").reference
    fields = {"caption": "A heron.", "pages": [{"url": reference}]}
    session.add_message(Message(OpaqueContent("shop.chart", fields, MessageRole.USER)))
    assert client._store.collect_blobs(2**62) == 0
    assert session.read_blob(reference) == PNG


def test_a_picture_does_not_change_the_prompt_from_turn_to_turn(client: Client) -> None:
    session = client.session("chat")
    talk = session.conversation(model=ScriptedModel(["a cat", "a dog"], name="eye"))
    talk.say(picture()).raise_for_error()
    talk.say("and now?").raise_for_error()
    again = client.session("chat").conversation(model=ScriptedModel(["yes"], name="eye"))
    again.say("sure?").raise_for_error()
    assert not [event for event in again.history() if event.kind == "prompt.changed"]
