"""The compiled program of a decoder: found in the cache by its settings, or built.

Finding one needs neither the model's layers nor the compiler: they are imported only to build one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from relaxlab.ir.target import Target
from relaxlab.models.loader import Checkpoint
from relaxlab.models.request import Request
from relaxlab.models.weights import Source, from_json, to_json
from relaxlab.runtime import cache as programs_on_disk
from relaxlab.runtime.executable import Executable

if TYPE_CHECKING:
    from relaxlab.ir.module import Module
    from relaxlab.passes.base import Pipeline


@dataclass(frozen=True, slots=True)
class Program:
    """An executable and where its weights come from, in order."""

    executable: Executable
    sources: tuple[Source, ...]

    def cache_shapes(
        self, function: str, first: int, layers: int, positions: int
    ) -> list[tuple[int, ...]]:
        """Return the shapes of the keys and values of each layer in turn, parameters of a function
        from number `first` on, with capacity for `positions` positions (see `nn.KVCache`)."""
        params = self.executable[function].info.params[first : first + 2 * layers]
        shapes: list[tuple[int, ...]] = []
        for _, tree in params:
            batch, heads, _, *tail = tree.dims
            lanes = tail[1] if len(tail) == 2 else 1  # the keys' positions are in blocks
            shapes.append((batch, heads, -(-positions // lanes), *tail))
        return shapes


def program_for(
    checkpoint: Checkpoint,
    request: Request,
    *,
    threads: int | None = None,
    pipeline: Pipeline | None = None,
    use_cache: bool = True,
) -> Program:
    """The program of a checkpoint for a request; arguments as for `compile`."""
    target = Target.host()
    key = programs_on_disk.request_key(_values(checkpoint, request), target)
    found = programs_on_disk.find(key) if use_cache and pipeline is None else None
    if found is not None:
        program, artifact, metadata = found
        executable = Executable(artifact, target, threads, from_cache=True)
        executable.key = program
        executable.compiled_from = lambda: (_built(checkpoint, request)[0], None)
        return Program(executable, from_json(metadata))
    from relaxlab.runtime.build import compile

    module, sources = _built(checkpoint, request)
    executable = compile(module, threads=threads, pipeline=pipeline, use_cache=use_cache)
    if executable.key is not None:
        programs_on_disk.remember(key, executable.key, to_json(sources))
    return Program(executable, sources)


def _values(checkpoint: Checkpoint, request: Request) -> dict[str, Any]:
    """Return the values that determine the module, as JSON has them."""
    formats: Mapping[str, str] = checkpoint.formats
    return {"config": asdict(checkpoint.config), "formats": formats, "request": asdict(request)}


def _built(checkpoint: Checkpoint, request: Request) -> tuple[Module, tuple[Source, ...]]:
    from relaxlab.models.build import build

    return build(checkpoint.config, checkpoint.formats, request)
