"""`tvm.runtime`: arrays and devices, compiled modules and registered functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median, stdev
from time import perf_counter
from typing import Any

import numpy as np

from relaxlab.analysis.loops_check import require_accesses_inside
from relaxlab.ir.dtypes import numpy_dtype
from relaxlab.ir.loops import IS_SCHEDULED, PrimFunc
from relaxlab.ir.module import Module as IRModule
from relaxlab.ir.node import replace
from relaxlab.runtime import packed
from relaxlab.runtime.arrays import dtype_name
from relaxlab.runtime.build import compile as core_compile
from relaxlab.runtime.interchange import viewed
from relaxlab.runtime.programs import as_module
from relaxlab.schedule.compact import compact_buffers
from relaxlab.tvm.names import names
from relaxlab.tvm.target import core_target


@dataclass(frozen=True)
class Device:
    """A device of a kind. Arrays live in the memory of the host, from where GPUs copy them."""

    type: str = "cpu"
    index: int = 0

    @property
    def exist(self) -> bool:
        """True if there is such a device."""
        if self.type != "cuda":
            return self.type == "cpu"
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return False
        return True

    def sync(self) -> None:
        """Return: a call has ended when it returns."""

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    __repr__ = __str__


_KINDS = {"llvm": "cpu", "cpu": "cpu", "c": "cpu", "cuda": "cuda", "gpu": "cuda"}


_NUMBERS = {1: "cpu", 2: "cuda"}
"""The kinds of devices by the numbers that DLPack gives them."""


def device(dev_type: str | int, dev_id: int | None = None) -> Device:
    """The device that a text such as "cuda:0" names, or the number of its kind. Raises ValueError
    for another kind."""
    named = _NUMBERS.get(dev_type, dev_type) if isinstance(dev_type, int) else dev_type
    kind, _, number = str(named).partition(" ")[0].partition(":")
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of devices {kind!r}; known: {', '.join(_KINDS)}")
    return Device(_KINDS[kind], dev_id if dev_id is not None else int(number or 0))


def enabled(target: str) -> bool:
    """True if programs for a target can be compiled and run here."""
    kind = _KINDS.get(target.partition(" ")[0])
    return kind is not None and Device(kind).exist


def cpu(dev_id: int = 0) -> Device:
    """The CPU."""
    return Device("cpu", dev_id)


def cuda(dev_id: int = 0) -> Device:
    """A GPU."""
    return Device("cuda", dev_id)


class Tensor:
    """An array that compiled functions read and write, over NumPy's memory."""

    __slots__ = ("_array", "device")

    def __init__(self, array: np.ndarray[Any, Any], device: Device) -> None:
        self._array, self.device = array, device

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions."""
        return self._array.shape

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self._array.ndim

    @property
    def dtype(self) -> str:
        """The name of the dtype."""
        return dtype_name(self._array)

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy as an array of NumPy."""
        return self._array.copy()

    asnumpy = numpy

    def copyfrom(self, source_array: Any) -> Tensor:
        """Take over the elements of another array of the same shape. Returns the array."""
        given = np.asarray(unwrapped(source_array))
        if given.shape != self.shape:
            raise ValueError(f"the array has shape {self.shape}, the source {given.shape}")
        self._array[...] = given.astype(self._array.dtype)
        return self

    def copyto(self, target: Tensor | Device, mem_scope: str | None = None) -> Tensor:
        """Copy the elements to another array, or to a new one on a device. Returns it."""
        if isinstance(target, Device):
            return Tensor(self._array.copy(), target)
        return target.copyfrom(self)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, index: Any) -> Any:
        found = self._array[index]
        return Tensor(found, self.device) if isinstance(found, np.ndarray) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[index] = unwrapped(value)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<relaxlab.tvm.runtime.Tensor shape={self.shape}, {self.device}>\n{self._array!r}"


def tensor(arr: Any, device: Device | None = None, mem_scope: str | None = None) -> Tensor:
    """A new array with the elements of another, on a device."""
    given = unwrapped(arr)
    array = viewed(given) if hasattr(given, "__dlpack__") else np.asarray(given)
    return Tensor(np.array(array, order="C"), device or cpu())


def empty(
    shape: Sequence[int], dtype: Any = "float32", device: Device | None = None,
    mem_scope: str | None = None,
) -> Tensor:  # fmt: skip
    """A new array whose elements are to be written."""
    return Tensor(np.empty(tuple(map(int, shape)), _numpy(dtype)), device or cpu())


def from_dlpack(dltensor: Any) -> Tensor:
    """An array over the memory of another library's."""
    return Tensor(viewed(dltensor), cpu())


def _numpy(dtype: Any) -> np.dtype[Any]:
    return numpy_dtype(dtype) if isinstance(dtype, str) else np.dtype(dtype)


def unwrapped(value: Any) -> Any:
    """A value as compiled functions of the core take it: arrays as NumPy's."""
    match value:
        case Tensor():
            return value._array
        case tuple() | list():
            return tuple(map(unwrapped, value))
        case _:
            return value


def wrapped(value: Any, device: Device) -> Any:
    """A result of a compiled function of the core, with arrays of this module."""
    match value:
        case np.ndarray():
            return Tensor(value, device)
        case tuple():
            return tuple(wrapped(v, device) for v in value)
        case _:
            return value


@dataclass(frozen=True)
class BenchmarkResult:
    """Seconds per call, a mean for each repetition."""

    results: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean."""
        return mean(self.results)

    @property
    def median(self) -> float:
        """The median."""
        return median(self.results)

    @property
    def min(self) -> float:
        """The fastest."""
        return min(self.results)

    @property
    def max(self) -> float:
        """The slowest."""
        return max(self.results)

    @property
    def std(self) -> float:
        """The standard deviation."""
        return stdev(self.results) if len(self.results) > 1 else 0.0


class Module:
    """A compiled module: `mod["main"](*arrays)` calls a function, `mod(*arrays)` the entry."""

    entry_name = "main"

    def __init__(self, exe: Any, device: Device) -> None:
        self.exe, self._device = exe, device

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self.get_function(name)

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function of that name. Raises AttributeError where there is none."""
        name = "main" if name == "__tvm_main__" else name
        if name not in self.exe:
            raise AttributeError(
                f"the module has no function {name!r}; it has: {', '.join(self.exe)}"
            )
        function = self.exe[name]

        def call(*args: Any) -> Any:
            return wrapped(function(*map(unwrapped, args)), self._device)

        return call

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """True if the module has a function of that name."""
        return name in self.exe

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_") or name == "exe":
            raise AttributeError(name)
        return self.get_function(name)

    def __call__(self, *args: Any) -> Any:
        only = [*self.exe]
        return self[only[0] if len(only) == 1 else self.entry_name](*args)

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """A function that times calls of the function of that name."""
        return time_evaluator(self.get_function(func_name), **options)

    def export_library(self, file_name: str, **options: Any) -> None:
        """Write a shared library with a C interface; `load_module` brings it back."""
        self.exe.export(file_name)

    def get_source(self, fmt: str = "") -> str:
        """The program in the language of LLVM, in assembly ("asm"), or in that of the GPU."""
        if hasattr(self.exe, "ptx"):
            return self.exe.ptx if fmt == "ptx" else self.exe.source()
        return self.exe.llvm() if fmt in ("", "ll", "llvm") else self.exe.assembly()

    inspect_source = get_source

    @property
    def imported_modules(self) -> list[Module]:
        """The modules of kernels that the module calls."""
        return [self]

    imports = imported_modules


def time_evaluator(
    function: Callable[..., Any], *, number: int = 10, repeat: int = 1, min_repeat_ms: int = 0,
    limit_zero_time_iterations: int = 100, cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1, cache_flush_bytes: int = 0, f_preproc: str = "",
) -> Callable[..., BenchmarkResult]:  # fmt: skip
    """A function that times calls: each of `repeat` results is the mean of `number` calls, of
    more where they take less than `min_repeat_ms`."""

    def evaluate(*args: Any) -> BenchmarkResult:
        function(*args)
        return BenchmarkResult(
            tuple(_seconds(function, args, number, min_repeat_ms) for _ in range(repeat))
        )

    return evaluate


def _seconds(
    function: Callable[..., Any], args: tuple[Any, ...], number: int, least_ms: float
) -> float:
    while True:
        start = perf_counter()
        for _ in range(number):
            function(*args)
        took = perf_counter() - start
        if took * 1e3 >= least_ms:
            return took / number
        number = max(number + 1, int(number * min(10.0, 1.2 * least_ms / max(took * 1e3, 1e-3))))


def build(mod: Any, target: Any = None, **options: Any) -> Module:
    """Compile loop functions as they are written to a module that can be called."""
    program = as_module(mod if isinstance(mod, IRModule | PrimFunc) else IRModule.of(dict(mod)))
    require_accesses_inside(program.loop_functions())
    funcs = {name: _as_written(func) for name, func in program.loop_functions().items()}
    chosen = core_target(target)
    exe = core_compile(program.with_functions(funcs), chosen)
    return Module(exe, device_of(chosen.kind))


def device_of(kind: str) -> Device:
    """The device that programs for a kind of targets run on: a GPU, or else the CPU."""
    return device(_KINDS.get(kind, "cpu"))


def _as_written(func: PrimFunc) -> PrimFunc:
    attrs = func.attrs.with_(**{IS_SCHEDULED: True})
    return compact_buffers(replace(func, attrs=attrs))


def load_module(path: str, fmt: str = "") -> Module:
    """The module of a shared library that was exported."""
    from relaxlab.runtime.load import load

    return Module(load(path), cpu())


def register_func(
    func_name: str | Callable[..., Any], f: Callable[..., Any] | None = None,
    override: bool = False,
) -> Any:  # fmt: skip
    """Make a function callable from programs by its name; without `f`, a decorator does.

    The function is given arrays of this module, whose elements it may write.
    """
    if callable(func_name):
        return register_func(func_name.__name__, func_name, override)

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        packed.register_func(func_name, _with_tensors(fn), override=override)
        return fn

    return register if f is None else register(f)


register_global_func = register_func


def _with_tensors(fn: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return unwrapped(fn(*(wrapped(a, cpu()) for a in args)))

    call.__wrapped__ = fn  # type: ignore[attr-defined]
    return call


def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The function registered under a name; None where `allow_missing` and there is none.

    Raises ValueError where there is none.
    """
    try:
        found = packed.get_func(name)
    except KeyError as error:
        if allow_missing:
            return None
        raise ValueError(f"Cannot find global function {name}") from error
    return getattr(found, "__wrapped__", found)


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """Arrays by name as bytes, for `load_param_dict`."""
    from io import BytesIO

    out = BytesIO()
    arrays: dict[str, Any] = {k: np.asarray(unwrapped(v)) for k, v in params.items()}
    np.savez(out, **arrays)
    return out.getvalue()


def load_param_dict(param_bytes: bytes) -> dict[str, Tensor]:
    """The arrays that `save_param_dict` wrote."""
    from io import BytesIO

    with np.load(BytesIO(param_bytes)) as found:
        return {k: tensor(found[k]) for k in found.files}


def save_param_dict_to_file(params: Mapping[str, Any], path: str) -> None:
    """Write arrays by name to a file, for `load_param_dict_from_file`."""
    Path(path).write_bytes(save_param_dict(params))


def load_param_dict_from_file(path: str) -> dict[str, Tensor]:
    """The arrays that `save_param_dict_to_file` wrote."""
    return load_param_dict(Path(path).read_bytes())


_HOMES = {
    "DataType": "relaxlab.tvm.dtype:DataType",
    "num_threads": "relaxlab.runtime.native.openmp:default_threads",
    "NDArray": "relaxlab.tvm.runtime:Tensor",
    "const": "relaxlab.tvm.tir:const",
    "String": "builtins:str",
    "ShapeTuple": "builtins:tuple",
}

__path__: list[str] = []  # which lets imports look for submodules, of which `hook` has the names
__getattr__, __dir__ = names(__name__, _HOMES)
