"""`relaxlab transcribe`: write down the speech in sound files."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from typing import Any

import numpy as np

from relaxlab.cli.options import UsageError
from relaxlab.cli.progress import Progress
from relaxlab.models.mel import RATE
from relaxlab.models.transcriber import Transcriber, Transcript

Array = np.ndarray[Any, np.dtype[Any]]


def run(options: argparse.Namespace) -> int:
    """Print the text of each file."""
    recordings = [read_sound(file) for file in options.files]
    with Progress() as progress:
        progress(f"loading {options.model}")
        transcriber = Transcriber.from_pretrained(
            options.model, threads=options.threads, use_cache=not options.no_cache
        )
    for file, samples in zip(options.files, recordings, strict=True):
        try:
            (found,) = transcriber.transcribe(
                [samples],
                language=options.language,
                task="translate" if options.translate else "transcribe",
                timestamps=options.timestamps,
            )
        except ValueError as error:
            raise UsageError(f"{file}: {error}") from None
        _show(file, found, options)
    return 0


def _show(file: str, found: Transcript, options: argparse.Namespace) -> None:
    if options.json:
        segments = [{"start": s.start, "end": s.end, "text": s.text} for s in found.segments]
        report: dict[str, Any] = {"file": file, "language": found.language, "text": found.text}
        print(json.dumps(report | ({"segments": segments} if options.timestamps else {})))
        return
    if len(options.files) > 1:
        print(f"> {file}")
    if options.timestamps:
        for s in found.segments:
            end = "" if s.end is None else f"{s.end:.2f}"
            print(f"[{s.start:7.2f} {end:>7}] {s.text.strip()}")
    else:
        print(found.text.strip())


def read_sound(file: str) -> Array:
    """The samples of a sound file, float32 (samples,), `RATE` per second; channels are averaged.
    UsageError for a file that is no sound, ImportError where the packages for it are missing."""
    try:
        soundfile: Any = import_module("soundfile")
        soxr: Any = import_module("soxr")
    except ImportError as error:
        raise ImportError(
            f"reading sound files takes the package {error.name}: pip install 'relaxlab[audio]'"
        ) from None
    with open(file, "rb") as opened:
        try:
            samples, rate = soundfile.read(opened, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise UsageError(f"{file}: no sound that can be read: {error.error_string}") from None
    return soxr.resample(samples.mean(axis=1, dtype=np.float32), rate, RATE).astype(np.float32)
