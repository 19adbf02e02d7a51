"""Compiled programs kept on disk.

One file per program under its key, which it ends with; beside it, entries of an index from a
request (what a program is to be made for) to that key, so that a program is found again without
building its module. Files are written under a temporary name
and renamed, so two processes never see half a file; a damaged file is deleted and rebuilt; a folder
that cannot be written to costs only the caching.

The files hold machine code that is run, and their keys are no secret. So a cache belongs to one
user: a folder or file that another user owns or may write to is not used, and a warning says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from relaxlab.codegen.artifact import Artifact, ArtifactError
from relaxlab.ir.errors import UserError
from relaxlab.ir.source_files import python_files
from relaxlab.ir.target import Target

_T = TypeVar("_T")

PACKAGES = ("llvmlite", "numpy", "ml_dtypes")
"""Packages that compiled programs depend on beside the compiler's own source: LLVM, and those that
fold constants."""


def cache_dir() -> Path:
    """`$RELAXLAB_CACHE`, else `$XDG_CACHE_HOME/relaxlab`, else `~/.cache/relaxlab`."""
    asked = os.environ.get("RELAXLAB_CACHE")
    if asked:
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "relaxlab"


@cache
def compiler_version() -> str:
    """A digest of the compiler's own source and of the versions of Python and of `PACKAGES`: any
    change makes new keys."""
    root = Path(__file__).parents[1]
    sources = [
        (str(path.relative_to(root)), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(root.rglob("*.py"))
    ]
    return _digest([_versions(), sources])


@cache
def _source_stamp() -> str:
    """Like `compiler_version`, by the sizes and times of the source files instead of their content:
    two milliseconds instead of thirty. Copies of the same source have different stamps, so they
    share programs but not entries of the index."""
    root = Path(__file__).parents[1]
    sources = [
        (path, status.st_size, status.st_mtime_ns) for path, status in sorted(python_files(root))
    ]
    return _digest([_versions(), sources])


def _versions() -> list[Any]:
    packages = [import_module(name) for name in PACKAGES]
    llvm = import_module("llvmlite.binding").llvm_version_info
    return [sys.version_info[:2], llvm, [package.__version__ for package in packages]]


def _digest(parts: Any) -> str:
    """Return the SHA-256 of the parts as JSON, in which different parts never read the same."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def artifact_key(module_key: str, target: Target, options: Iterable[str]) -> str:
    """The key of a program: its structure, the machine, the options and the compiler."""
    return _digest([module_key, _machine(target), list(options), compiler_version()])


def request_key(request: Any, target: Target) -> str:
    """The key of an index entry. `request` is all that decides the module and its options, as
    values that JSON has."""
    return _digest([request, _machine(target), _source_stamp()])


def machine_key(target: Target) -> str:
    """A digest of the properties of a machine that compilation depends on."""
    return _digest(_machine(target))


def _machine(target: Target) -> list[Any]:
    return [target.to_json(), asdict(target.facts)]


class ForeignCache(UserError, OSError):
    """A folder or file of the cache that another user owns or may write to."""


def require_private(path: Path, status: os.stat_result) -> None:
    """Raise ForeignCache unless the file or folder belongs to this user and only this user may
    write to it. (On Windows, which has neither owners nor modes of this kind, nothing is asked.)"""
    if not hasattr(os, "geteuid"):
        return
    if status.st_uid != os.geteuid():
        raise ForeignCache(
            f"{path} belongs to user {status.st_uid}, not to you ({os.geteuid()}); set "
            "RELAXLAB_CACHE to a folder of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ForeignCache(
            f"other users may write to {path} (mode {stat.S_IMODE(status.st_mode):o}); run "
            f"`chmod go-w {shlex.quote(str(path))}` if nobody else has, or set RELAXLAB_CACHE to a "
            "folder of your own"
        )


def private_folder() -> Path:
    """The cache's folder, made if it does not exist. Raises OSError where it cannot be made, and
    ForeignCache (one of them) where it is not this user's alone."""
    folder = cache_dir()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_private(folder, folder.stat())
    return folder


def _read_private(path: Path) -> bytes:
    require_private(path.parent, path.parent.stat())
    with path.open("rb") as f:
        # The open file is tested: nobody can exchange it between the test and the reading.
        require_private(path, os.fstat(f.fileno()))
        return f.read()


def load(key: str) -> Artifact | None:
    """The cached program, or None. A damaged entry is removed."""
    return _load(f"{key}.rlx", Artifact.from_bytes)


def store(key: str, artifact: Artifact) -> bool:
    """Keep a program; False when the folder cannot be written to."""
    return _store(f"{key}.rlx", artifact.to_bytes())


def find(key: str) -> tuple[str, Artifact, Any] | None:
    """Return the program of a request's key, its artifact, and the metadata that `remember` stored;
    None if one of them is missing."""
    entry = _load(f"{key}.json", _index_entry)
    artifact = None if entry is None else load(entry[0])
    return None if entry is None or artifact is None else (entry[0], artifact, entry[1])


def remember(key: str, program: str, metadata: Any) -> bool:
    """Keep for a request's key which program it is and its `metadata`, values that JSON has;
    False when the folder cannot be written to."""
    return _store(f"{key}.json", json.dumps({"program": program, "metadata": metadata}).encode())


def _index_entry(content: bytes) -> tuple[str, Any]:
    entry = json.loads(content)
    return entry["program"], entry["metadata"]


def _load(name: str, decode: Callable[[bytes], _T]) -> _T | None:
    """The content of a file, which ends with the stem of its name; None without one. A damaged
    file is removed."""
    path = cache_dir() / name
    stem = path.stem.encode()
    try:
        data = _read_private(path)
        # The name at the end: a file cut off by a full disk, or copied under another key, is seen.
        if not data.endswith(stem):
            raise ArtifactError("the file is cut off, or was moved here from another name")
        return decode(data[: -len(stem)])
    except ForeignCache as e:
        warnings.warn(f"the cache is not used: {e}", RuntimeWarning, stacklevel=3)
        _note(name, f"not used: {e}", applied=False)
        return None
    except OSError:
        return None
    except (ArtifactError, ValueError, KeyError, TypeError) as e:
        _note(name, f"rebuilt: {e}")
        with suppress(OSError):  # a folder that cannot be written to
            path.unlink()
        return None


def _store(name: str, content: bytes) -> bool:
    folder = cache_dir()
    try:
        folder = private_folder()
        handle, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(content + Path(name).stem.encode())
            # Atomic: a reader sees the old file or the new one, never half of one.
            os.replace(temporary, folder / name)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as e:
        _note(str(folder), f"not kept: {e}", applied=False)
        return False
    return True


def _note(subject: str, text: str, *, applied: bool = True) -> None:
    from relaxlab.tracing import remark  # who finds a program needs no records

    remark("artifact_cache", subject, text, applied=applied)


def cached(key: str, build: Callable[[], Artifact]) -> tuple[Artifact, bool]:
    """The program of that key, built if need be; and whether it came from the cache."""
    found = load(key)
    if found is not None:
        return found, True
    artifact = build()
    store(key, artifact)
    return artifact, False
