"""Loading of a program's weights: from the tensors of a file to their places in memory."""

from __future__ import annotations

import math
import mmap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from relaxlab.codegen.artifact import Part
from relaxlab.codegen.llvm.jit import release_pages
from relaxlab.models.config import DecoderConfig
from relaxlab.runtime.executable import Executable
from relaxlab.runtime.large_pages import ALIGN, region, zeros

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

LEAST_BUFFER = 16 << 20
"""Bytes of address space for the fields of a tensor; pages that are not used take no memory."""
SLACK = 64 * ALIGN
"""Bytes for aligning the fields of a tensor."""


@dataclass(frozen=True, slots=True)
class Source:
    """The source of a parameter's array: this field of those tensors, the rows of one below those
    of the other; without tensors, the table of that name (see `rotary_tables`)."""

    tensors: tuple[str, ...]
    field: str


def rotary_tables(config: DecoderConfig, context: int) -> dict[str, Array]:
    """The cosines and sines of the positions of a context, float32 (context, dims / 2), by the
    names of the parameters."""
    found: dict[str, Array] = {}
    for name, rope in (("rotary", config.rope), ("local_rotary", config.local_rope)):
        if rope is not None:
            cos, sin = rope.tables(context)
            found |= {f"{name}.cos": cos, f"{name}.sin": sin}
    return found


def to_json(sources: Sequence[Source]) -> list[Any]:
    """The sources as values that JSON has."""
    return [[*source.tensors, source.field] for source in sources]


def from_json(values: Sequence[Sequence[str]]) -> tuple[Source, ...]:
    """The inverse of `to_json`."""
    return tuple(Source(tuple(tensors), field) for *tensors, field in values)


def prepared(executable: Executable, weights: list[Array]) -> list[Array]:
    """The weights as the functions of a program take them: repacked to the layouts chosen."""
    by = _transform_of(executable)
    return weights if by is None else list(executable[by](tuple(weights)))


def _transform_of(executable: Executable) -> str | None:
    """The function that transforms the weights of all functions, which are the same; None where
    none does. Raises ValueError for functions with different weights."""
    names = set(executable.artifact.transforms.values())
    if len(names) > 1:
        listed = ", ".join(sorted(names))
        raise ValueError(f"the functions of the program have different weights: {listed}")
    return next(iter(names), None)


def loaded(
    executable: Executable,
    sources: Sequence[Source],
    read: Callable[[str], Mapping[str, Array]],
    tables: Mapping[str, Array],
) -> list[Array]:
    """Return the weights as the functions of a program take them, each repacked as soon as it is
    read.

    read: the stored fields of a tensor, maybe as views of a file; tables: arrays that are computed.
    The tensors pass one by one through a buffer that fits into the cache, so that nothing is in
    memory twice, and the file's pages are released behind them; so are the compiler's, before.
    """
    # Before anything is read, or the peak would hold LLVM's instructions beside the weights.
    release_pages()
    parts = executable.artifact.parts.get(_transform_of(executable) or "")
    if parts is None:
        return prepared(executable, [dense(s, read, tables) for s in sources])
    results: dict[int, Array] = {}
    buffer = _Buffer()
    for size, members in _by_tensor(parts, sources, read):
        buffer.prepare(size)
        fields: dict[Source, Array] = {}
        for function, inputs, outputs in members:
            for number in inputs:
                source = sources[number]
                if source not in fields:
                    fields[source] = dense(source, read, tables, buffer.take)
            arrays = [fields[sources[number]] for number in inputs]
            if function:
                results.update(zip(outputs, executable[function](*arrays), strict=True))
            else:
                # The next group overwrites the buffer.
                kept = (buffer.moved(array) for array in arrays)
                results.update(zip(outputs, kept, strict=True))
        for name in {t for source in fields for t in source.tensors}:
            for view in read(name).values():
                _forget_pages(view)
    return [results[number] for number in range(len(results))]


def _by_tensor(
    parts: Sequence[Part],
    sources: Sequence[Source],
    read: Callable[[str], Mapping[str, Array]],
) -> Iterable[tuple[int, list[Part]]]:
    """Return the parts in groups that read the same tensors, with an upper bound of their bytes;
    largest first, as they need most space beside finished weights. Weights that are returned
    unchanged are groups of one."""
    single = [p for p in parts if p[0]]
    single += [("", (i,), (o,)) for p in parts if not p[0] for i, o in zip(*p[1:], strict=True)]
    groups: dict[Any, list[Part]] = {}
    for part in single:
        tensors = frozenset(t for number in part[1] for t in sources[number].tensors)
        groups.setdefault(tensors, []).append(part)

    def size(tensors: frozenset[str]) -> int:
        return sum(view.nbytes for t in tensors for view in read(t).values())

    sizes = {tensors: size(tensors) for tensors in groups}
    return [(sizes[t], groups[t]) for t in sorted(groups, key=sizes.__getitem__, reverse=True)]


class _Buffer:
    """Memory that is used again for each tensor, so that its pages are made once."""

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)
        self._used = 0

    def prepare(self, size: int) -> None:
        """Reserve `size` bytes for arrays; earlier ones may be overwritten. Memory that was
        reserved for much larger tensors goes back to the system."""
        self._used = 0
        size += SLACK
        # Groups come largest first: a buffer made for the embedding would stay that large for all
        # layers.
        if not size <= self._memory.nbytes <= 2 * max(size, LEAST_BUFFER):
            self._memory = region(max(size, LEAST_BUFFER), large=False)

    def take(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """An uninitialised array."""
        start = self._used
        end = start + math.prod(shape) * dtype.itemsize
        self._used = -(-end // ALIGN) * ALIGN
        return self._memory[start:end].view(dtype).reshape(shape)

    def moved(self, array: Array) -> Array:
        """Return the array, copied if it is inside the buffer."""
        if not np.may_share_memory(array, self._memory):
            return array
        (copy,) = zeros([array.shape], array.dtype.name)
        copy[...] = array
        return copy


def dense(
    source: Source,
    read: Callable[[str], Mapping[str, Array]],
    tables: Mapping[str, Array],
    empty: Callable[[tuple[int, ...], np.dtype[Any]], Array] = np.empty,
) -> Array:
    """Return the array of a source: a view if it is contiguous in the file, else a copy in an
    `empty` array."""
    if not source.tensors:
        return tables[source.field]
    parts = [read(tensor)[source.field] for tensor in source.tensors]
    if len(parts) == 1 and parts[0].flags.c_contiguous:
        return parts[0]
    rows = sum(part.shape[0] for part in parts)
    joined = empty((rows, *parts[0].shape[1:]), parts[0].dtype)
    np.concatenate(parts, out=joined)
    return joined


def _forget_pages(view: Array) -> None:
    """Release the pages that are wholly inside `view` if it is mapped from a file; reading it again
    brings them back."""
    owner: Any = view
    while isinstance(owner, np.ndarray | memoryview):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
        return
    origin = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
    start, end = (address - origin for address in np.lib.array_utils.byte_bounds(view))
    # Whole pages only: the ends of one belong to the neighbours, too.
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    last = end // mmap.PAGESIZE * mmap.PAGESIZE
    if last > first:
        owner.madvise(mmap.MADV_DONTNEED, first, last - first)
