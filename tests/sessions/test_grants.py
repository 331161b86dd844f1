"""Grants: the table of docs/sessions.md, row by row, and what must never become a grant."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from zipfile import ZipFile

import pytest
from pydantic import BaseModel

import sennit
from sennit import AccessError, Branch, Message, NotFoundError, Session, SystemContent
from sennit.errors import ValidationError
from sennit.operations.context import OperationContext
from sennit.sessions.grants import Grants, Needs
from sennit.testing import ScriptedModel
from tests.conducting import result_of

PAGE = Path(__file__).parents[2] / "docs" / "sessions.md"


class Knot(BaseModel):
    turns: int


def tie(knot: str) -> str:
    """Tie a knot."""
    return knot


def tighten(knot: str) -> str:
    """Tighten a knot."""
    return knot


GRANTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "empty sets": {"resources": set[str]()},
    "the name": {"resources": {"sage", "tie"}, "capabilities": {"Knot"}},
    '`"*"`': {"resources": "*", "capabilities": "*"},
}


def branch_with(given: str) -> tuple[Session, Branch]:
    """A session in which a model "sage" and a tool "tie" are registered, and a branch."""
    session = Session()
    session.services.register(ScriptedModel(["Yes."] * 9, "sage"))
    session.services.register(tie)
    return session, session.create_branch("main", **GRANTS[given])


def use(session: Session, what: str, tool: Callable[..., Any] = tie) -> None:
    """Use it on "main"; raises AccessError."""
    model, other = session.services.model("sage"), ScriptedModel(["Yes."], "other")
    asked: dict[str, Callable[[], Any]] = {
        "a registered name": lambda: session.conversation(model="sage", tools=["tie"]),
        "its object": lambda: session.conversation(model=model, tools=[tool]),
        "another object": lambda: session.conversation(model=other),
        "a provider string": lambda: session.conversation(model="openai:gpt-5"),
        "an output class": lambda: result_of(
            session, "parse", text='{"turns": 3}', response_model=Knot
        ),
    }
    asked[what]()


def rows() -> list[tuple[str, str, Literal["yes", "no"]]]:
    """The cells of the table: what was given to the branch, what is used, and if it may be."""
    lines = PAGE.read_text(encoding="utf-8").split("| granted to the branch |")[1].splitlines()
    header = [cell.strip() for cell in lines[0].strip("|").split("|")]
    found: list[Any] = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        given, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        found += [(given, what, cell) for what, cell in zip(header, cells, strict=True)]
    return found


@pytest.mark.parametrize(("given", "what", "may"), rows())
def test_the_table_of_grants_says_what_happens(
    given: str, what: str, may: Literal["yes", "no"]
) -> None:
    session, branch = branch_with(given)
    if may == "yes":
        use(session, what)
    else:
        with pytest.raises(AccessError, match=r"may not use .* Grant it with branch\.grant"):
            use(session, what)
    assert branch.fenced == (given != "nothing")


@pytest.mark.parametrize(("given", "what", "may"), rows())
def test_the_table_of_grants_holds_for_services_registered_under_another_name(
    given: str, what: str, may: Literal["yes", "no"]
) -> None:
    session = Session()
    session.services.register(ScriptedModel(["Yes."] * 9, "oracle"), "sage")
    session.services.register(tighten, "tie")
    session.create_branch("main", **GRANTS[given])
    if may == "yes":
        use(session, what, tighten)
    else:
        with pytest.raises(AccessError, match=r"may not use .* Grant it with branch\.grant"):
            use(session, what, tighten)


def test_operations_and_requests_know_objects_by_the_names_they_are_registered_under() -> None:
    session = Session()
    model = ScriptedModel(["Yes."] * 9, "oracle")
    session.services.register(model, "sage")
    tool = session.services.register(tighten, "tie")
    branch = session.create_branch("main", resources={"sage", "tie"})
    for offered in (tighten, tool):
        assert OperationContext(session, branch).tools([offered]) == [tool]
        assert session.conversation(model=model, tools=[offered]).request.tools == {"tie": tool}
    assert OperationContext(session, branch).model(model) is model
    said = [{"role": "user", "content": "Well?"}]
    asyncio.run(session.request("sage", branch="main", messages=said, tools=[tool]))
    branch.revoke(resources={"sage", "tie"})
    branch.grant(resources={"oracle", "tighten"})
    with pytest.raises(AccessError, match="may not use 'sage', 'tie'"):
        session.conversation(model=model, tools=[tighten])


def test_the_table_of_grants_has_every_case() -> None:
    assert len(rows()) == 4 * 5


@pytest.mark.parametrize("kept", [True, None])
def test_a_fork_of_a_branch_without_grants_is_like_it(kept: Literal[True] | None) -> None:
    session, main = branch_with("nothing")
    assert not main.fork(resources=kept, capabilities=kept).fenced
    assert not main.fork(resources=kept).fenced
    fenced = session.fork(main, resources=set(), capabilities=kept)
    assert fenced.fenced
    assert fenced.resources == frozenset() == fenced.capabilities


def test_on_a_fork_of_a_fenced_branch_none_means_empty() -> None:
    _, main = branch_with("the name")
    fork = main.fork()
    assert fork.fenced
    assert fork.resources == frozenset()
    assert main.fork(resources=True).resources == main.resources
    again = main.fork(resources=set()).fork(resources=True)
    assert again.fenced
    assert not again.resources


def test_an_edited_branch_keeps_its_fence_or_has_none() -> None:
    session, main = branch_with("nothing")
    session.add_message("user", "Hello")
    assert not main.edit(0, "Hi").fenced
    main.grant(resources=set())
    assert main.edit(0, "Hi").fenced


def test_revoking_leaves_a_fence_and_makes_one() -> None:
    _, main = branch_with("the name")
    main.revoke(resources={"sage", "tie"}, capabilities={"Knot"})
    assert main.fenced
    assert not main.resources
    assert not main.capabilities
    session, open_one = branch_with("nothing")
    open_one.revoke(resources={"sage"})
    assert open_one.fenced
    with pytest.raises(AccessError):
        session.conversation(model=session.services.model("sage"))


def test_granting_or_revoking_nothing_changes_nothing() -> None:
    _, main = branch_with("nothing")
    main.grant()
    main.revoke()
    assert not main.fenced


def test_single_capabilities_cannot_be_taken_out_of_all() -> None:
    _, main = branch_with('`"*"`')
    with pytest.raises(ValidationError, match="capabilities='\\*'"):
        main.revoke(capabilities={"Knot"})
    main.revoke(capabilities="*")
    assert main.capabilities == frozenset()


def test_a_fence_survives_reopening_and_so_does_its_absence(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("s")
        session.create_branch("open")
        session.create_branch("shut", capabilities=set())
        session.default_branch.grant(resources="*")
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("s")
        fences = {branch.name: branch.fenced for branch in session.branches}
        assert fences == {"open": False, "shut": True, "main": True}
        assert session.default_branch.resources == {"*"}
        assert client.doctor() == []


def archived(tmp_path: Path) -> Path:
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("s")
        session.create_branch("open")
        session.create_branch("shut", resources={"sage"}, capabilities={"Knot"})
        client.export(tmp_path / "a.zip")
    return tmp_path / "a.zip"


def test_an_imported_branch_keeps_its_fence_and_none_of_its_grants(tmp_path: Path) -> None:
    with sennit.open(":memory:") as client:
        client.import_sessions(archived(tmp_path))
        session = client.session("s", create=False)
        assert not session.get_branch("open").fenced
        shut = session.get_branch("shut")
        assert shut.fenced
        assert not shut.resources
        assert not shut.capabilities


def test_nothing_in_an_archive_grants_anything(tmp_path: Path) -> None:
    archive = archived(tmp_path)
    with ZipFile(archive) as file:
        lines = b"".join(file.read(name) for name in file.namelist()).decode()
    granted = [json.loads(line) for line in lines.splitlines() if '"kind":"branch"' in line]
    assert {tuple(one["resources"] or ()) for one in granted} == {(), ("sage",)}
    with sennit.open(":memory:") as client:
        client.import_sessions(archive)
        assert {frozenset[str](), frozenset[str]()} == {
            branch.resources for branch in client.session("s").branches
        }


def test_a_half_stored_grant_is_a_fence() -> None:
    assert Grants.stored(None, frozenset({"Knot"})).fenced
    assert Grants.stored(frozenset({"sage"}), None).fenced
    with pytest.raises(AccessError):
        Grants.stored(None, frozenset()).check("b", Needs(passed_resources=frozenset({"sage"})))


def test_a_string_that_is_a_registered_name_is_that_name() -> None:
    session = Session()
    session.services.register(ScriptedModel(["Mine."], "mine"), name="openai:gpt-5")
    with pytest.raises(AccessError, match="openai:gpt-5"):
        session.conversation(model="openai:gpt-5")
    assert len(session.branches) == 0
    session.default_branch.grant(resources={"openai:gpt-5"})
    assert session.conversation(model="openai:gpt-5").request.model.name == "mine"


def test_one_provider_string_gives_one_model_and_registers_nothing() -> None:
    session = Session()
    one, two = (session.conversation(model="local").request.model for _ in range(2))
    assert one is two
    assert session.services.list_names() == []


def test_what_is_neither_a_name_nor_a_provider_is_not_found() -> None:
    session = Session()
    for wrong in ("gpt-5", "nobody:gpt-5", "", "openai:"):
        with pytest.raises(NotFoundError, match=r"'provider:model'|known provider"):
            session.conversation(model=wrong)
    assert len(session.branches) == 0


@pytest.mark.parametrize("operation", ["generate", "communicate", "operate", "react", "parse"])
def test_operations_take_no_provider_strings(operation: str) -> None:
    session = Session()
    session.create_branch("main")
    with pytest.raises(NotFoundError, match="No service 'local'"):
        result_of(session, operation, imodel="local", instruction="Hello", text="x")


def test_operations_take_objects_where_no_grants_were_given() -> None:
    session = Session()
    session.create_branch("main")
    model = ScriptedModel(['{"turns": 3}', "Done."], "sage")
    given = result_of(
        session, "communicate", imodel=model, instruction="How many?", response_model=Knot
    )
    assert given == Knot(turns=3)
    assert result_of(session, "operate", imodel=model, instruction="Tie.", tools=[tie]) == "Done."


def test_a_refused_conversation_makes_no_branch() -> None:
    session = Session()
    session.services.register(ScriptedModel([], "sage"))
    wrong: list[dict[str, Any]] = [
        {"model": "sage"},
        {"model": "local", "temprature": 1},
        {"model": 5},
    ]
    for given in wrong:
        with pytest.raises((AccessError, ValidationError)):
            session.conversation(**given)
    assert len(session.branches) == 0


@pytest.mark.anyio
@pytest.mark.parametrize("branch", [None, "main"])
async def test_hello_world_on_a_fresh_store(branch: str | None, tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("a", system="Be brief.")
        model = ScriptedModel(["Hello."])
        result = await session.conversation(branch, model=model).asay("hi")
        assert result.answer == "Hello."
        assert [message.role.value for message in session.default_branch.messages] == [
            "system",
            "user",
            "assistant",
        ]


def test_a_system_message_may_be_a_text_everywhere(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "a.db") as client:
        session = client.session("a", system="One.")
        main = session.default_branch
        first = main.system
        assert first is not None
        assert first.rendered == "One."
        assert client.session("a", system="One.").default_branch.system is first
        assert client.session("a", system=Message(SystemContent("One."))).default_branch is main
        assert main.system is first
        session.conversation(model=ScriptedModel([]), system="Two.")
        assert main.system is not None
        assert main.system.rendered == "Two."
        made = session.create_branch("made", system="Three.")
        forked = session.fork(made, system="Four.")
        session.set_branch_system(made, "Five.")
        assert [one.system and one.system.rendered for one in (made, forked)] == ["Five.", "Four."]
