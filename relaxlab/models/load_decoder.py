"""A language model made ready to run: opened, compiled, its weights packed for the program."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from relaxlab.models.loader import Checkpoint, ModelError, open_model
from relaxlab.models.programs import Program, program_for
from relaxlab.models.request import Request
from relaxlab.models.weights import loaded, rotary_tables

if TYPE_CHECKING:
    from relaxlab.passes.base import Pipeline

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Progress: TypeAlias = Callable[[str], None]

DEFAULT_CONTEXT = 4096
"""Most positions kept by default: SmolLM2-135M's keys and values take 0.1 GB."""


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """Seconds spent on reading and repacking the weights, and on compiling."""

    load_s: float
    compile_s: float


@dataclass(frozen=True, slots=True)
class LoadedDecoder:
    """A checkpoint with its program and the weights as the program takes them. `max_context`: the
    most positions of a sequence."""

    checkpoint: Checkpoint
    program: Program
    weights: Sequence[Array]
    max_context: int
    times: LoadTimes


def load_decoder(
    model: str | os.PathLike[str] | Checkpoint,
    request: Request,
    *,
    max_context: int | None,
    threads: int | None,
    pipeline: Pipeline | None = None,
    use_cache: bool = True,
    progress: Progress | None = None,
) -> LoadedDecoder:
    """Open, compile and load a model; arguments as for `TextGenerator.load`.

    Raises what `open_model` raises, and ModelError for a context that the model does not have.
    """
    report = progress or (lambda _: None)
    start = time.perf_counter()
    if isinstance(model, Checkpoint):
        checkpoint = model
    else:
        report(f"opening {model}")
        checkpoint = open_model(model)
    context = context_of(checkpoint, max_context)
    opened = time.perf_counter()
    report(f"compiling {checkpoint.config.num_layers} layers")
    program = program_for(
        checkpoint, request, threads=threads, pipeline=pipeline, use_cache=use_cache
    )
    compiled = time.perf_counter()
    report("reading the weights")
    tables = rotary_tables(checkpoint.config, context)
    weights = loaded(program.executable, program.sources, checkpoint.read, tables)
    times = LoadTimes(opened - start + time.perf_counter() - compiled, compiled - opened)
    return LoadedDecoder(checkpoint, program, weights, context, times)


def context_of(checkpoint: Checkpoint, asked: int | None) -> int:
    """Return the most positions to keep: `asked`, or the default. Raises ModelError for a context
    that the model does not have."""
    longest = checkpoint.config.context_length
    if asked is None:
        return min(longest, DEFAULT_CONTEXT)
    if not 1 <= asked <= longest:
        raise ModelError(
            f"{checkpoint.path}: max_context must lie in 1..{longest}, the model's own, is {asked}"
        )
    return asked
