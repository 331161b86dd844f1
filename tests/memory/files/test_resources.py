"""Resources and skills: read, cut into sections, stored whole, found, replaced, reported."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import sennit
from sennit import Client, ExistsError, InvalidTypeError, NotFoundError, ValidationError
from sennit.cli.app import app
from sennit.memory.files.documents import MAX_TOKENS, read_document, sections_of
from sennit.memory.memory import engine_of
from tests.memory.remembering import client, store

__all__ = ["client", "store"]
pytest_plugins = ("tests.postgres",)

BOWLINE = "# Bowline\n\nA loop that does not slip.\n"


def manual(chapters: int = 6, paragraphs: int = 20) -> str:
    knots = ["bowline", "sheet bend", "clove hitch", "reef knot", "anchor bend", "figure eight"]
    parts = ["# Manual\n\nHow we tie things.\n"]
    for knot in knots[:chapters]:
        body = "\n\n".join(
            f"Step {step}: lead the end of the {knot} around, and look at it from both sides."
            for step in range(paragraphs)
        )
        parts.append(f"## {knot.title()}\n\n{body}\n")
    return "\n".join(parts)


def pdf(text: str) -> bytes:
    """A PDF of one page, written by hand."""
    stream = zlib.compress(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode())
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R"
        b"/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    head = b"xref\n0 6\n0000000000 65535 f \n"
    return out + head + table + b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(out)


def test_a_short_text_is_one_file_that_is_found(client: Client, tmp_path: Path) -> None:
    (tmp_path / "bowline.md").write_text(BOWLINE)
    added = client.add_resource(tmp_path / "bowline.md")
    assert added.uri == "viking://resources/bowline.md"
    assert added.files == [added.uri]
    assert client.fs.read(added.uri) == BOWLINE.rstrip("\n")
    found = client.find("loop that does not slip")
    assert [match.uri for match in found.resources] == [added.uri]
    assert found.memories == found.skills == []


def test_a_long_document_is_stored_in_sections_that_say_what_they_are_part_of(
    client: Client,
) -> None:
    added = client.add_resource(text=manual(), name="manual.md")
    assert len(added.files) > 2
    assert all(len(client.fs.read(file)) <= MAX_TOKENS * 4 + 200 for file in added.files)
    found = client.find("anchor bend from both sides")
    text = client.fs.read(found[0].uri)
    assert "Anchor Bend" in text
    assert text.startswith("Manual\n\n")
    overview = client.fs.overview(added.uri)
    assert all(file.rpartition("/")[2] in overview for file in added.files)
    assert client.fs.read(f"{added.uri}/.overview.md") == overview
    assert client.fs.read("viking://resources/.abstract.md").startswith("- manual.md: ")
    assert client.fs.stat(f"{added.uri}/.abstract.md").abstract


@given(st.text(alphabet=st.sampled_from("ab# \n`-é"), max_size=3_000), st.integers(1, 40))
def test_no_word_of_a_document_is_lost(text: str, times: int) -> None:
    text = "\n".join([text] * times)
    sections = sections_of("any.md", text)
    assert "".join("".join(section.text for section in sections).split()) == "".join(text.split())
    assert all(len(section.text) <= 4 * MAX_TOKENS for section in sections)


def test_adding_a_document_again_replaces_it_and_keeps_nothing_of_the_old_one(
    client: Client,
) -> None:
    client.add_resource(text=manual(6), name="manual.md")
    shorter = client.add_resource(text=manual(2), name="manual.md")
    assert [entry.uri for entry in client.fs.walk(shorter.uri)] == shorter.files
    assert not any("anchor" in match.abstract for match in client.find("anchor bend"))
    single = client.add_resource(text="A loop.", name="manual.md")
    assert single.files == ["viking://resources/manual.md"]
    again = client.add_resource(text=manual(6), name="manual.md")
    assert len(again.files) > 2
    versions = [client.fs.stat(file).version for file in again.files]
    client.add_resource(text=manual(6), name="manual.md")
    assert [client.fs.stat(file).version for file in again.files] == versions, "nothing changed"


def test_a_failure_while_a_document_is_replaced_leaves_the_old_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sennit.open(tmp_path / "s.db") as client:
        before = client.add_resource(text=manual(6), name="manual.md").files
        monkeypatch.setattr(engine_of(client.memory).scope.store, "change_files", _fail)
        with pytest.raises(RuntimeError, match="disk"):
            client.add_resource(text=manual(2), name="manual.md")
        monkeypatch.undo()
        assert [entry.uri for entry in client.fs.walk("viking://resources/manual.md")] == before


def _fail(*_args: Any) -> None:
    raise RuntimeError("disk")


def test_a_folder_is_added_but_for_the_files_that_cannot_be_read(
    client: Client, tmp_path: Path
) -> None:
    folder = tmp_path / "handbook"
    (folder / "knots").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("secret")
    (folder / "knots" / "bowline.md").write_text(BOWLINE)
    (folder / "knots" / "100% sure?.txt").write_text("Always dress the knot.")
    (folder / "page.html").write_text("<h1>Bends</h1><p>A sheet bend joins two ropes.</p>")
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing")
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    (folder / "link.md").symlink_to(folder / "page.html")
    (folder / "empty.md").write_text("  \n")
    seen: list[int] = []
    added = client.add_resource(folder, metadata={"team": "rope"}, progress=seen.append)
    assert added.uri == "viking://resources/handbook"
    assert {Path(file.path).name for file in added.unreadable} == {
        "broken.pdf",
        "photo.png",
        "link.md",
        "empty.md",
    }
    assert all(file.reason for file in added.unreadable)
    assert client.find("sheet bend")[0].uri.startswith("viking://resources/handbook/page.html/")
    assert len(client.fs.glob("viking://resources/handbook/knots/*")) == 2
    assert not client.fs.grep("secret")
    assert seen == sorted(seen)
    assert len(seen) >= 3


def test_a_pdf_is_read(client: Client, tmp_path: Path) -> None:
    (tmp_path / "guide.pdf").write_bytes(pdf("The bowline holds under load."))
    added = client.add_resource(tmp_path / "guide.pdf", reason="for the deck")
    assert "holds under load" in client.fs.read(added.files[0])
    assert client.find("bowline under load").resources[0].uri == added.files[0]


def test_a_pdf_that_unpacks_to_gigabytes_is_refused(client: Client, tmp_path: Path) -> None:
    bomb = pdf("x")
    packed = zlib.compress(b" " * 300_000_000, 9)
    start, end = bomb.index(b"stream\n") + 7, bomb.index(b"\nendstream")
    (tmp_path / "bomb.pdf").write_bytes(bomb[:start] + packed + bomb[end:])
    with pytest.raises(ValidationError, match="cannot be added"):
        client.add_resource(tmp_path / "bomb.pdf")
    assert client.fs.ls("viking://resources") == []


def test_files_whose_names_would_be_the_same_are_all_kept(client: Client, tmp_path: Path) -> None:
    for name in ("a:b.md", "a?b.md", "a-b.md"):
        (tmp_path / "f" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "f" / name).write_text(f"The text of {name}.")
    added = client.add_resource(tmp_path / "f")
    assert len(set(added.files)) == 3
    texts = {client.fs.read(file) for file in added.files}
    assert texts == {f"The text of {name}." for name in ("a:b.md", "a?b.md", "a-b.md")}
    assert client.add_resource(tmp_path / "f").files == added.files


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<html><head><title>T</title><body><h1>Hi</h1><p>A page.", "# Hi\n\nA page."),
        ("<body><p>before<svg><path></p><p>after", "before\n\nafter"),
        ("<p>a<script>x()</script>b<style>p{}</style>c<svg><text>no</text></svg>d", "abcd"),
        ("<p>1 < 2 &amp; 3 > 2</p>", "1 < 2 & 3 > 2"),
        ("<pre>a\n  b</pre>", "a\n  b"),
        ("<p>shown<!-- hidden", "shown"),
    ],
)
def test_the_text_of_a_page_is_what_a_browser_shows(page: str, text: str) -> None:
    assert read_document("page.html", page.encode()).strip() == text


@pytest.mark.parametrize(
    "unit", ["<a ", "<a b='", "<!--", "<!x ", "< ", "<svg>", "</", "# a  ", "#", " ", "<pre>"]
)
def test_a_text_that_repeats_a_mark_is_read_in_linear_time(unit: str) -> None:
    """Each would take minutes if every mark were compared with all that follows."""
    for name in ("page.html", "page.md"):
        sections_of(name, read_document(name, (f"# a{unit * 200_000}b>").encode()))


def test_a_skill_that_is_added_again_loses_the_files_that_it_had(
    client: Client, tmp_path: Path
) -> None:
    (tmp_path / "SKILL.md").write_text("---\nname: whip\n---\nWind the twine.")
    (tmp_path / "old.txt").write_text("Old advice.")
    client.add_skill(tmp_path)
    (tmp_path / "old.txt").rename(tmp_path / "new.txt")
    added = client.add_skill(tmp_path)
    assert [entry.uri for entry in client.fs.walk(added.uri)] == sorted(added.files)
    assert not any(file.endswith("old.txt") for file in added.files)


def test_a_link_in_the_place_of_a_skill_is_not_followed(client: Client, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("---\nname: x\n---\nsecret")
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "SKILL.md").symlink_to(tmp_path / "secret.txt")
    with pytest.raises(ValidationError, match="is a link"):
        client.add_skill(tmp_path / "skill")
    assert client.fs.ls("viking://agent/skills") == []


def test_labels_and_scores_select_results(client: Client) -> None:
    client.add_resource(text="The bowline is our knot.", name="a.md", metadata={"team": "rope"})
    client.add_resource(text="The bowline is their knot.", name="b.md", metadata={"team": "sail"})
    client.session("k").add_message("user", "I like the bowline knot.")
    found = client.find("bowline knot", metadata={"team": "rope"})
    assert [(match.uri, match.metadata) for match in found] == [
        ("viking://resources/a.md", {"team": "rope"})
    ]
    assert len(client.find("bowline knot").messages) == 1
    assert client.find("bowline knot", metadata={"team": "none"}) == []
    client.add_resource(text="A bowline.", name="c.md")
    all_scores = [match.score for match in client.find("bowline knot")]
    between = (all_scores[0] + all_scores[-1]) / 2
    strong = client.find("bowline knot", score_threshold=between)
    assert 0 < len(strong) < len(all_scores)


def test_a_skill_is_added_from_a_dict_a_file_or_a_folder(client: Client, tmp_path: Path) -> None:
    first = client.add_skill(
        {"name": "splice", "description": "Join two ropes.", "content": "Unlay the strands."}
    )
    assert first.files == ["viking://agent/skills/splice/SKILL.md"]
    assert client.fs.read(first.files[0]).startswith("---\nname: splice\ndescription: Join two")
    folder = tmp_path / "whip"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: whip ends\n---\nWind the twine.")
    (folder / "twine.txt").write_text("Use waxed twine.")
    alone = client.add_skill(folder / "SKILL.md")
    second = client.add_skill(folder)
    assert second.uri == alone.uri == "viking://agent/skills/whip-ends"
    assert len(second.files) == 2
    assert client.find("waxed twine").skills[0].uri == second.files[1]


@pytest.mark.parametrize(
    ("skill", "error", "text"),
    [
        ({"description": "no name"}, ValidationError, "needs a 'name'"),
        ({"name": "x\ndescription: y"}, ValidationError, "needs a 'name'"),
        ({"name": "x", "content": 7}, InvalidTypeError, "are texts"),
        ({"name": "x", "tools": []}, ValidationError, "got also 'tools'"),
        ("missing/SKILL.md", NotFoundError, "no file or folder"),
    ],
)
def test_a_wrong_skill_is_refused(
    client: Client, skill: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        client.add_skill(skill)
    assert client.fs.ls("viking://agent/skills") == []


def test_wrong_sources_are_refused_with_the_way_out(client: Client, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="not fetched"):
        client.add_resource("https://example.com/knots.html")
    with pytest.raises(NotFoundError, match="pass text= and name="):
        client.add_resource("A bowline is a loop.")
    with pytest.raises(ValidationError, match="needs a name="):
        client.add_resource(text="A bowline is a loop.")
    with pytest.raises(ValidationError, match="either"):
        client.add_resource()
    with pytest.raises(InvalidTypeError, match="metadata must be a dict"):
        client.add_resource(text="x", name="x", metadata={"a": [1]})  # type: ignore[dict-item]
    for place in ("viking://user/memories", "viking://agent/memories/cases"):
        with pytest.raises(ValidationError, match="below 'viking://resources'"):
            client.add_resource(text="x", name="x", to=place)
    with pytest.raises(ValidationError, match="lone surrogate"):
        client.add_resource(text="h\ud800i", name="x")
    client.fs.write("viking://resources/own.md", "written by hand")
    with pytest.raises(ExistsError, match="other contents"):
        client.add_resource(text="x", name="own.md")
    client.fs.write("viking://resources/file", "a file")
    with pytest.raises(ExistsError, match="is a file, not a folder"):
        client.add_resource(text="x", name="x", to="viking://resources/file")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    with pytest.raises(ValidationError, match=r"latin\.txt' cannot be added: it is not"):
        client.add_resource(tmp_path / "latin.txt")


def test_a_folder_is_added_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "knots").mkdir()
    (tmp_path / "knots" / "bowline.md").write_text(BOWLINE)
    (tmp_path / "knots" / "photo.png").write_bytes(b"\x89PNG\x00")
    store = str(tmp_path / "s.db")
    sennit.open(store).close()
    done = CliRunner().invoke(app, ["fs", "add", str(tmp_path / "knots"), "--store", store])
    assert done.exit_code == 0, done.output
    assert "1 file in viking://resources/knots" in done.output
    assert "photo.png: it is not a text, an HTML page or a PDF" in done.output
    missing = CliRunner().invoke(app, ["fs", "add", "nothing", "--store", store])
    assert missing.exit_code != 0


def test_resources_belong_to_one_user(tmp_path: Path) -> None:
    with sennit.open(tmp_path / "s.db", user="ada") as ada:
        ada.add_resource(text=BOWLINE, name="bowline.md")
        ada.wait_processed()
    with sennit.open(tmp_path / "s.db", user="ben") as ben:
        assert ben.find("loop that does not slip") == []
        assert ben.fs.ls("viking://resources") == []
