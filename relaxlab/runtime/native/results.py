"""Results of compiled functions, made of the words that machine code writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from relaxlab.codegen.artifact import TypeTree
from relaxlab.codegen.llvm.context import BLOCK_HEADER
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.runtime.native.arguments import address_of, count_words, view_memory, word_to_scalar
from relaxlab.runtime.native.blocks import SpareBlocks, owned_block

ResultConverter = Callable[[Any, "Sources"], Any]


def read_value(tree: TypeTree, words: Any, at: int) -> Any:
    """A Python value from words, viewing tensors in place."""
    if tree.kind == "tensor":
        dims = tuple(words[at + 1 + i] for i in range(tree.ndim))
        return view_memory(words[at], dims, numpy_dtype(tree.dtype))
    if tree.kind == "shape":
        return tuple(words[at + i] for i in range(tree.ndim))
    if tree.kind == "scalar":
        return word_to_scalar(words[at], tree.dtype)
    fields: list[Any] = []
    for field in tree.fields:
        fields.append(read_value(field, words, at))
        at += count_words(field)
    return tuple(fields)


def span_of(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """The addresses of the first byte and of the one after the last."""
    start = address_of(array)
    return start, start + array.nbytes


def result_converter(
    tree: TypeTree, at: int, of_data: Callable[[TypeTree, int], Any] | None = None
) -> ResultConverter:
    """A function that makes a result of this type from its words, those from position `at` on.
    `of_data` reads the value of a data type at an address."""
    if tree.kind == "tensor":
        kind, sizes = numpy_dtype(tree.dtype), slice(at + 1, at + 1 + tree.ndim)
        return lambda words, sources: sources.array(words[at], tuple(words[sizes]), kind)
    if tree.kind == "tuple":
        converters: list[ResultConverter] = []
        for field in tree.fields:
            converters.append(result_converter(field, at, of_data))
            at += count_words(field)
        return lambda words, sources: tuple([convert(words, sources) for convert in converters])
    if tree.kind == "data":
        assert of_data is not None
        return lambda words, _: of_data(tree, words[at])
    return lambda words, _: read_value(tree, words, at)


class Sources:
    """The sources of a result's memory: a fresh block, an argument, or a constant.

    `bound_at` has the bound arguments by address, `arrays` all arrays that a result may be a part
    of; blocks come from `spare`, or go there.
    """

    __slots__ = ("arrays", "blocks", "bound_at", "owners", "spare")

    def __init__(
        self, blocks: dict[int, int], bound_at: Mapping[int, np.ndarray[Any, Any]],
        arrays: Sequence[Sequence[np.ndarray[Any, Any]]], spare: SpareBlocks,
    ) -> None:  # fmt: skip
        self.blocks, self.bound_at, self.arrays, self.spare = blocks, bound_at, arrays, spare
        self.owners: dict[int, Any] = {}

    def array(self, address: int, dims: tuple[int, ...], kind: Any) -> np.ndarray[Any, Any]:
        owner = self.owners.get(address)
        if owner is None and address in self.blocks:
            owner = owned_block(address, self.blocks.pop(address), self.spare)
            self.owners[address] = owner
        if owner is not None:
            return view_memory(address, dims, kind, owner)
        source = self._argument(address)
        if source is None:
            # Nobody is known to keep this memory.
            return view_memory(address, dims, kind).copy()
        start, _ = span_of(source)
        if start == address and source.shape == dims and source.dtype == kind:
            return source
        data = source.reshape(-1).view(np.uint8)
        return view_memory(address, dims, kind, data, address - start)

    def _argument(self, address: int) -> np.ndarray[Any, Any] | None:
        """The argument, packed function's result or constant that holds the address."""
        if address in self.bound_at:
            return self.bound_at[address]
        for array in chain.from_iterable(self.arrays):
            start, end = span_of(array)
            # An empty array has an address, too.
            if start <= address < max(end, start + 1):
                return array
        return None

    def release(self) -> None:
        """Give back the blocks that are not part of the result."""
        for address, size in self.blocks.items():
            self.spare.give(address - BLOCK_HEADER, size)
