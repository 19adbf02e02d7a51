"""Compiled programs kept on disk.

One file per program under its key, which it ends with. Files are written under a temporary name
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
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from relaxlab.codegen.artifact import Artifact, ArtifactError
from relaxlab.ir.target import FLOAT_OPTIONS, Target
from relaxlab.tracing import note


def cache_dir() -> Path:
    """`$RELAXLAB_CACHE`, else `$XDG_CACHE_HOME/relaxlab`, else `~/.cache/relaxlab`."""
    asked = os.environ.get("RELAXLAB_CACHE")
    if asked:
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "relaxlab"


@cache
def compiler_version() -> str:
    """A digest of the compiler's own source and of the versions of Python, LLVM and NumPy (which
    folds constants): any change makes new keys."""
    import llvmlite.binding as llvm

    packages = [version(name) for name in ("llvmlite", "numpy", "ml_dtypes")]
    root = Path(__file__).parents[1]
    sources = [
        (str(path.relative_to(root)), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(root.rglob("*.py"))
    ]
    return _digest([sys.version_info[:2], llvm.llvm_version_info, packages, sources])


def _digest(parts: Any) -> str:
    """JSON says where a part ends, so that different parts never read the same."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def artifact_key(module_key: str, target: Target, options: Iterable[str]) -> str:
    """The key of a program: its structure, the machine, the options and the compiler."""
    machine = [target.kind, target.triple, target.cpu, sorted(target.features)]
    machine += [getattr(target, name) for name in FLOAT_OPTIONS]
    return _digest([module_key, machine, list(options), compiler_version()])


class ForeignCache(OSError):
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
        require_private(path, os.fstat(f.fileno()))
        return f.read()


def load(key: str) -> Artifact | None:
    """The cached program, or None. A damaged entry is removed."""
    path = cache_dir() / f"{key}.rlx"
    try:
        data = _read_private(path)
        if not data.endswith(key.encode()):
            raise ArtifactError("the file is cut off, or was moved here from another name")
        return Artifact.from_bytes(data[: -len(key)])
    except ForeignCache as e:
        warnings.warn(f"the cache is not used: {e}", RuntimeWarning, stacklevel=2)
        note("artifact_cache", path.name, f"not used: {e}", applied=False)
        return None
    except OSError:
        return None
    except (ArtifactError, ValueError, KeyError, TypeError) as e:
        note("artifact_cache", path.name, f"rebuilt: {e}")
        with suppress(OSError):  # a folder that cannot be written to
            path.unlink()
        return None


def store(key: str, artifact: Artifact) -> bool:
    """Keep a program; False when the folder cannot be written to."""
    folder = cache_dir()
    try:
        folder = private_folder()
        handle, name = tempfile.mkstemp(dir=folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as f:
                f.write(artifact.to_bytes() + key.encode())
            os.replace(name, folder / f"{key}.rlx")
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as e:
        note("artifact_cache", str(folder), f"not kept: {e}", applied=False)
        return False
    return True


def cached(key: str, build: Callable[[], Artifact]) -> tuple[Artifact, bool]:
    """The program of that key, built if need be; and whether it came from the cache."""
    found = load(key)
    if found is not None:
        return found, True
    artifact = build()
    store(key, artifact)
    return artifact, False
