"""Model files: parts that hold data only, and manifests that vouch for them.

A model is a folder, or a zip of it. ``manifest.json`` is the version in use: facts, and every part
with its size and SHA-256. ``manifest-0001.json`` and so on are all versions; parts are named by
their content, so versions share what they have in common. Parts are safetensors, or skops for
scikit-learn estimators: nothing in them is executed. Parts are written first and the manifest is
replaced last, in one step, so that a save interrupted at any byte leaves the old model whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

FORMAT = 1
_MANIFEST_LIMIT = 16 << 20
_PART_LIMIT = 4 << 30  # no part may be larger, whatever a manifest says
_TEMPORARY = ".part-"
_MANIFEST = "manifest.json"
_VERSION_NAME = re.compile(r"manifest-([0-9]{4,9})\.json")
_PART_NAME = re.compile(r"[a-z]+-[0-9a-f]{16}\.(safetensors|skops)")


class ModelFileError(ValueError):
    """A model file cannot be written or read; the message says why and what to do."""


class Container(Protocol):
    """Where the files of a model are: a folder, or a zip file."""

    path: Path

    def names(self) -> list[str]: ...

    def read(self, name: str, limit: int) -> bytes: ...

    def change(self, new: Mapping[str, bytes], manifest: bytes, gone: set[str]) -> None:
        """Write new files, then the manifest, then take files away."""


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> list[str]:
        return [entry.name for entry in self.path.iterdir()] if self.path.is_dir() else []

    def read(self, name: str, limit: int) -> bytes:
        path = self.path / name
        try:
            # No link is followed, and nothing that is not a plain file is waited for.
            flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
            descriptor = os.open(path, os.O_RDONLY | flags)
            with os.fdopen(descriptor, "rb") as file:
                facts = os.fstat(descriptor)
                if not stat.S_ISREG(facts.st_mode):
                    raise ModelFileError(f"{path} is not a plain file")
                if facts.st_size > limit:
                    raise ModelFileError(f"{path} is larger than it may be ({limit} bytes)")
                return file.read(limit)
        except OSError as error:
            raise ModelFileError(f"{path} cannot be read: {error.strerror}") from error

    def change(self, new: Mapping[str, bytes], manifest: bytes, gone: set[str]) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        for name, data in new.items():
            write_atomically(self.path / name, data)
        write_atomically(self.path / _MANIFEST, manifest)
        for name in gone:
            (self.path / name).unlink(missing_ok=True)


class Zip:
    """The same files, stored without compression: what is read is never larger than the file."""

    def __init__(self, path: Path, data: bytes | None = None) -> None:
        self.path = path
        self._data = data

    def _open(self) -> zipfile.ZipFile:
        source: Any = self.path if self._data is None else io.BytesIO(self._data)
        try:
            return zipfile.ZipFile(source)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise ModelFileError(f"{self.path} is no limen model: {error}") from error

    def names(self) -> list[str]:
        if self._data is None and not self.path.exists():
            return []
        with self._open() as file:
            return file.namelist()

    def read(self, name: str, limit: int) -> bytes:
        with self._open() as file:
            try:
                entries = [entry for entry in file.infolist() if entry.filename == name]
                if len(entries) != 1:
                    raise ModelFileError(f"{self.path} holds {len(entries)} files called {name}")
                [entry] = entries
                if entry.compress_type != zipfile.ZIP_STORED or entry.file_size > limit:
                    raise ModelFileError(
                        f"{self.path}: {name} is compressed, or larger than it may be"
                    )
                return file.read(entry)
            except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, EOFError) as error:
                if isinstance(error, ModelFileError):
                    raise
                raise ModelFileError(f"{self.path}: {name} cannot be read: {error}") from error

    def change(self, new: Mapping[str, bytes], manifest: bytes, gone: set[str]) -> None:
        kept = [n for n in self.names() if n not in {*new, *gone, _MANIFEST}]
        files = {name: self.read(name, _PART_LIMIT) for name in kept}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
            for name, data in {**files, **new, _MANIFEST: manifest}.items():
                file.writestr(zipfile.ZipInfo(name), data)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.path, buffer.getvalue())


def container(path: str | os.PathLike[str], as_zip: bool = False) -> Container:
    """The model at `path`, or where it is to be."""
    place = Path(path).expanduser()
    if place.is_dir() or not (as_zip or place.exists()):
        return Folder(place)
    return Zip(place)


def write_model(
    path: str | os.PathLike[str],
    facts: Mapping[str, Any],
    parts: Mapping[str, bytes],
    *,
    keep: bool = False,
    as_zip: bool = False,
) -> int:
    """Write `facts` and the named parts (``{"weights": ...}``) as the model at `path`.

    With `keep` it is a new version beside those that are there, else it takes their place. Returns
    the number of the version.
    """
    place = container(path, as_zip)
    there = place.names()
    if there and not _is_model(place):
        raise ModelFileError(f"{place.path} is something else: choose another name")
    if as_zip and place.path.is_dir():
        raise ModelFileError(f"{place.path} is a folder, and stays one: choose another name")
    every = _versions(place)
    # A number is never used again: until the manifest is replaced, nothing that counts is touched.
    old, number = every if keep else [], max(every, default=0) + 1
    parent = _manifest(place, _MANIFEST)["version"] if old else None
    order = {"version": number, "parent": parent}
    manifest: dict[str, Any] = {"format": FORMAT, **facts, **order, "parts": {}}
    new = {}
    for kind, data in parts.items():
        digest = hashlib.sha256(data).hexdigest()
        name = f"{kind}-{digest[:16]}.{'skops' if data[:2] == b'PK' else 'safetensors'}"
        manifest["parts"][kind] = {"file": name, "bytes": len(data), "sha256": digest}
        new[name] = data
    text = json.dumps(manifest, indent=1, default=_plain, allow_nan=False).encode()
    new[_version_name(number)] = text
    wanted = {*new, _MANIFEST}
    for name in map(_version_name, old):
        wanted |= {name, *(part["file"] for part in _manifest(place, name)["parts"].values())}
    ours = {n for n in there if _PART_NAME.fullmatch(n) or _VERSION_NAME.fullmatch(n)}
    try:
        place.change(new, text, ours - wanted)
    except OSError as error:
        raise ModelFileError(
            f"cannot write {place.path}: {error.strerror or error}. What was there is as it was."
        ) from error
    return number


def read_model(
    path: str | os.PathLike[str], version: int | None = None
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Facts and parts of a version, by default the one in use; sizes and checksums verified."""
    place = container(path)
    if not place.path.exists():
        raise ModelFileError(f"there is no model at {place.path}")
    return read_container(place, version)


def read_container(
    place: Container, version: int | None = None
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """`read_model` of a container."""
    if version is not None and version not in _versions(place):
        raise ModelFileError(
            f"{place.path} has no version {version}, but {_versions(place)}: see limen history"
        )
    manifest = _manifest(place, _MANIFEST if version is None else _version_name(version))
    return manifest, {kind: _read_part(place, part) for kind, part in manifest["parts"].items()}


def read_manifest(path: str | os.PathLike[str], version: int | None = None) -> dict[str, Any]:
    """The facts alone."""
    place = container(path)
    if not place.path.exists():
        raise ModelFileError(f"there is no model at {place.path}")
    return _manifest(place, _MANIFEST if version is None else _version_name(version))


def versions(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The facts of every version, oldest first."""
    place = container(path)
    read_manifest(path)
    return [_manifest(place, _version_name(number)) for number in _versions(place)]


def activate(path: str | os.PathLike[str], version: int) -> None:
    """Use another version from now on; nothing is lost. All its parts are checked first."""
    place = container(path)
    read_container(place, version)
    place.change({}, place.read(_version_name(version), _MANIFEST_LIMIT), set())


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """While one process changes a model, another that wants to is refused."""
    import fcntl  # not on every system

    place = Path(path).expanduser()
    try:
        descriptor = os.open(place, os.O_RDONLY)
    except OSError as error:
        raise ModelFileError(f"there is no model at {place}: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(descriptor), os.stat(place)):
            raise BlockingIOError  # a zip that was replaced just now
        yield
    except BlockingIOError as error:
        raise ModelFileError(
            f"{place} is being changed by another process: try again when it is done"
        ) from error
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes) -> None:
    """So that a reader sees the old file or the new one, whole; on the disk before it has its name.

    Whatever fails, nothing is left behind. The folder must exist.
    """
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=_TEMPORARY)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp allows the owner alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _version_name(number: int) -> str:
    return f"manifest-{number:04d}.json"


def _versions(place: Container) -> list[int]:
    found = (_VERSION_NAME.fullmatch(name) for name in place.names())
    return sorted(int(match[1]) for match in found if match)


def _manifest(place: Container, name: str) -> dict[str, Any]:
    try:
        manifest: Any = json.loads(place.read(name, _MANIFEST_LIMIT))
    except (ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{place.path}: {name} is damaged: {error}") from error
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise ModelFileError(f"{place.path}: {name} is not that of a limen model")
    if version > FORMAT:
        raise ModelFileError(
            f"{place.path} has format {version}, this limen reads up to {FORMAT}: install a newer "
            "limen"
        )
    number = manifest.setdefault("version", 1)  # the first files had no versions
    if not isinstance(number, int) or isinstance(number, bool) or "limen" not in manifest:
        raise ModelFileError(f"{place.path}: {name} does not say which version it is")
    parts = manifest.get("parts")
    if not isinstance(parts, dict) or not all(map(_is_part, parts.values())):
        raise ModelFileError(f"{place.path}: {name} lacks its list of parts")
    checked: dict[str, Any] = manifest
    return checked


def _is_part(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and {"file", "bytes", "sha256"} <= part.keys()
        and isinstance(part["file"], str)
        and _PART_NAME.fullmatch(part["file"]) is not None
        and isinstance(part["bytes"], int)
        and 0 <= part["bytes"] <= _PART_LIMIT
    )


def _read_part(place: Container, part: Mapping[str, Any]) -> bytes:
    name, size = part["file"], part["bytes"]
    data = place.read(name, size)
    if len(data) != size or hashlib.sha256(data).hexdigest() != part["sha256"]:
        raise ModelFileError(
            f"{place.path / name} is not what was saved (truncated or altered): restore it from a "
            "copy"
        )
    return data


def _is_model(place: Container) -> bool:
    """Ours, or what an interrupted first save left: parts without a manifest."""
    names = place.names()
    if _MANIFEST not in names:
        known = (_PART_NAME, _VERSION_NAME)
        return all(any(p.fullmatch(n) for p in known) or _TEMPORARY in n for n in names)
    try:
        _manifest(place, _MANIFEST)
    except ModelFileError:
        return False
    return True


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise ModelFileError(f"{value!r:.60} cannot be stored: numbers and text can")
