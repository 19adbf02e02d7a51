"""Compiled programs as Python objects."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxlab.codegen.artifact import Artifact
from relaxlab.ir.arguments import methods_name_arguments
from relaxlab.ir.brief import Brief, cut
from relaxlab.ir.display import Displayed
from relaxlab.ir.errors import brief
from relaxlab.ir.names import among
from relaxlab.ir.target import Target
from relaxlab.runtime.arrays import uninitialised
from relaxlab.runtime.native.function import NativeFunction
from relaxlab.runtime.native.loaded import Code, LoadedProgram

if TYPE_CHECKING:
    from relaxlab.ir.loops import PrimFunc
    from relaxlab.ir.module import Module
    from relaxlab.passes.base import Pipeline
    from relaxlab.runtime.native.weights import Weights


@methods_name_arguments
class Executable(LoadedProgram, Displayed, Brief):
    """A compiled module. `exe["main"](*arrays)` runs a function on NumPy (or DLPack) arrays.

    `exe.main(*arrays)` is the same, and so is `exe(*arrays)` for `main` or the only function.
    Arguments may be given by name. They are not copied, but numbers and lists of them become
    arrays of the parameter's dtype where no number changes. Results are new arrays, or an argument
    or a view of one where the function returns it, reshaped or updated in place. Who passes arrays
    of another library, such as PyTorch's tensors, is given arrays of that library, over the memory
    of the results. Calls from several threads take turns. A child process may call it after `fork`,
    even if another thread of the parent was inside a call; under GCC's libgomp, whose threads do
    not survive a fork, the child's calls use one thread.

    A loop function that was compiled by itself takes its buffers, and returns those that it writes
    to; buffers that it writes to before it reads them may all be left out, and are allocated. Their
    elements that it does not write have no value of their own: they are 0, and NaN (or bytes 0x5A)
    with `checks="all"` and in the interpreter.

    `key` is the program's in the cache, None for one that is not there. Where `runs_here` is False,
    the target is another machine: calls raise ExecutionError, `assembly`, `llvm` and `object` give
    the code.

    >>> import relaxlab as rl                                             # doctest: +SKIP
    >>> exe = rl.compile(mod); exe["main"](np.ones(4, "float32"))         # doctest: +SKIP
    """

    def __repr__(self) -> str:
        target = self.target.cpu or self.target.triple
        names = cut(", ".join(self), 200)
        return f"Executable({names}; {target}, threads: {self.threads})"

    def __init__(
        self,
        artifact: Artifact,
        target: Target,
        threads: int | None = None,
        *,
        from_cache: bool = False,
        code: Code | None = None,
    ) -> None:
        """code: where the machine code is; None: the artifact's own is loaded."""
        super().__init__(artifact, target, threads, code)
        self.from_cache = from_cache
        self.key: str | None = None
        self._weights: dict[str, Weights] = {}
        self._functions = {f.name: NativeFunction(self, f) for f in artifact.functions}

    def __getitem__(self, name: str) -> NativeFunction:
        try:
            return self._functions[name]
        except KeyError:
            raise KeyError(self._no_function(name)) from None

    def __getattr__(self, name: str) -> NativeFunction:
        # Not `self._functions`: before `__init__` set it, that would ask this method again, for
        # ever.
        functions = vars(self).get("_functions", {})
        if name in functions:
            return functions[name]
        raise AttributeError(self._no_function(name), name=name, obj=self)

    def _no_function(self, name: str) -> str:
        artifact: Artifact | None = vars(self).get("artifact")
        if artifact is not None and name in artifact.left_out:
            return artifact.left_out[name]
        names = sorted(self) if "_functions" in vars(self) else ()
        return f"the executable has no function {name!r}; it has: {among(name, names)}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self})

    @brief
    def __call__(self, *args: Any, **named: Any) -> Any:
        """Call `main`, or the only function. Raises what `chosen` raises."""
        return self.chosen()(*args, **named)

    def chosen(self) -> NativeFunction:
        """The function `main`, or the only one that does not pack weights.

        Raises TypeError naming the functions where there are several.
        """
        parts = (part for listed in self.artifact.parts.values() for part, *_ in listed)
        packing = {*self.artifact.transforms.values(), *parts}
        mine = [name for name in self._functions if name not in packing]
        if not mine:
            raise TypeError("; ".join(self.artifact.left_out.values()))
        if "main" not in mine and len(mine) != 1:
            raise TypeError(
                f"the executable has several functions; call one of {', '.join(mine)}: "
                f'exe["{mine[0]}"](...)'
            )
        return self["main" if "main" in mine else mine[0]]

    def belongs_to(
        self,
        mod: Module,
        pipeline: Pipeline | None,
        entries: Mapping[str, PrimFunc],
        *,
        poison: bool,
    ) -> None:
        """Set the program that was compiled: `entries` are loop functions that are called by
        themselves; outputs that such a call leaves out are filled as unwritten if `poison`."""
        from relaxlab.runtime.native.bind_weights import find_weights
        from relaxlab.runtime.programs import allocator, zeroed

        self.compiled_from = mod, pipeline
        self._weights = find_weights(self._functions, mod, self.artifact.transforms)
        for name, weights in self._weights.items():
            self[name].weights = weights
            self[name].adapt_with(weights.adapt, always=weights.are_packed)
        for name, func in entries.items():
            complete = allocator(name, func, self[name].check)
            adapt = partial(complete, uninitialised if poison else zeroed)
            self[name].adapt_with(adapt, always=False)

    def load(self, params: Mapping[str, Any] | Sequence[Any]) -> Executable:
        """Pack the weights of the program once and bind them: later calls take the inputs alone.

        params: arrays by name (`nn.Module.state_dict()`, names with dots or as the parameters
        have them), or in the order of the parameters. Returns the executable.

        Raises ArgumentError for weights that are missing, unknown, or do not fit.
        """
        from relaxlab.runtime.native.bind_weights import bind_together
        from relaxlab.runtime.native.weights import packed_by_function

        bound = packed_by_function(self._weights, params)
        bind_together([(self._functions[name], values) for name, values in bound.items()])
        return self

    def bind_packed(self, weights: Sequence[Any]) -> None:
        """Bind weights to all functions that take them, as the program's transformation returns
        them (see `lift_transform_params`)."""
        from relaxlab.runtime.native.bind_weights import bind_together

        bind_together([(self._functions[name], weights) for name in self._weights])

    def packed_weights(self, name: str, weights: Sequence[Any]) -> Sequence[Any]:
        """The weights of a function as its machine code takes them."""
        return self._weights[name].packed(weights) if name in self._weights else weights

    def llvm(self, name: str | None = None) -> str:
        """The program in the language of LLVM, after LLVM's passes; or one function of it, a
        kernel or a function that can be called.

        Raises KeyError for an unknown name, ValueError for a library that was loaded.
        """
        from relaxlab.runtime.native import listings

        return listings.llvm(self, name)

    def assembly(self, name: str | None = None) -> str:
        """The program in the assembly language of its target; or one function of it.

        Raises what `llvm` raises.
        """
        from relaxlab.runtime.native import listings

        return listings.assembly(self, name)

    def object(self) -> bytes:
        """The program as an object file: position-independent machine code for a linker.

        What it calls besides the C library is described in docs/export.md. Raises what `llvm`
        raises.
        """
        from relaxlab.runtime.native import listings

        return listings.object_file(self)

    def source(self, name: str | None = None) -> str:
        """The module that the machine code was made from, after all passes, as a script; or one
        function of it.

        Raises KeyError for an unknown name, ValueError for a library that was loaded.
        """
        from relaxlab.runtime.native import listings

        return listings.source(self, name)

    @brief
    def export(self, path: str | os.PathLike[str], *, bound: bool = False) -> tuple[Path, ...]:
        """Write a shared library with a C interface, `path` ending in .so, and its header.

        Beside it comes `<name>.params` with the program's constants and, if `bound`, with the
        arrays given to `bind`: the C functions then lack those parameters, except for arrays that
        are updated in place and what is bound before them, which the C program gives. Returns the
        paths of the files. The library serves processors that have what this target has; `load`
        brings it back.

        Raises ExportError for a program that needs Python or has no C form, where there is no C
        compiler, or when the files cannot be written; nothing is left half-written then.
        """
        from relaxlab.runtime.export.export import export

        return export(self, self._functions, path, bound=bound)
