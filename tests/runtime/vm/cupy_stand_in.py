"""A module in the place of CuPy, with NumPy's arrays and kernels that a C++ compiler compiles."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from relaxlab.codegen.cuda import nvrtc
from tests.codegen.cuda.on_cpu import CpuCuda


class DeviceArray(np.ndarray):
    """An array of the device."""

    @property
    def data(self) -> Any:  # type: ignore[override]
        """Its memory, as CuPy has it."""
        return SimpleNamespace(ptr=self.ctypes.data)

    def set(self, source: Any, stream: Any) -> None:
        """Copy from an array of the host."""
        assert type(source) is np.ndarray and not stream.is_capturing()
        np.copyto(self, source)

    def get(self) -> Any:
        """A copy on the host."""
        return np.array(self)


class Stream:
    """A stream, which records instead of running while it is captured."""

    ptr = 0

    def __init__(self, cupy: CupyStandIn, non_blocking: bool = False) -> None:
        self.cupy, self.recorded = cupy, None

    def __enter__(self) -> None:
        self.cupy.streams.append(self)

    def __exit__(self, *_: object) -> None:
        self.cupy.streams.pop()

    def is_capturing(self) -> bool:
        return self.recorded is not None

    def begin_capture(self) -> None:
        self.recorded: list[Callable[[], None]] | None = []

    def end_capture(self) -> Any:
        launches, self.recorded = self.recorded or [], None

        def launch() -> None:
            self.cupy.graph_launches += 1
            for run in launches:
                run()

        return SimpleNamespace(launch=launch)


class CupyStandIn:
    """A stand-in for the part of CuPy that the runtime uses. `compiled` makes functions of CUDA C;
    `launches` counts kernels that are launched one by one, `graph_launches` graphs."""

    ndarray = DeviceArray

    def __init__(self, compiled: Callable[[str], CpuCuda]) -> None:
        self.compiled, self.launches, self.graph_launches = compiled, 0, 0
        self.streams = [Stream(self)]
        self.driven: dict[int, Callable[..., None]] = {}
        c_uint, c_void_p = ctypes.c_uint, ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(ctypes.c_int, c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p)
        self._driver = kind(self._launched)
        self.cuda = SimpleNamespace(
            get_current_stream=lambda: self.streams[-1],
            Stream=lambda non_blocking: Stream(self, non_blocking),
        )

    def asarray(self, value: Any) -> Any:
        return self.copy_of(np.array(value))

    def asnumpy(self, value: Any) -> Any:
        return np.array(value)

    def copyto(self, target: Any, source: Any) -> None:
        assert target.shape == source.shape and target.dtype == source.dtype
        np.copyto(target, source)

    def copy_of(self, value: Any) -> Any:
        made = self.empty(value.shape, value.dtype)
        made[...] = value
        return made

    def empty(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """An array whose address is a multiple of 16, as the device's are."""
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        raw = np.full(size + 16, 0xFF, np.uint8)
        start = -raw.ctypes.data % 16
        return raw[start : start + size].view(dtype).reshape(shape).view(DeviceArray)

    def zeros(self, shape: Any, dtype: Any) -> Any:
        made = self.empty((shape,) if isinstance(shape, int) else shape, dtype)
        made.fill(0)
        return made

    def RawModule(self, path: str) -> Any:  # noqa: N802
        """A module of what `compile_as_text` made."""
        code = self.compiled(Path(path).read_text())
        return SimpleNamespace(get_function=lambda name: self._entry(code, name))

    def driver_functions(self) -> tuple[int, int]:
        """Functions in the place of the driver's."""
        return ctypes.cast(self._driver, ctypes.c_void_p).value or 0, 0

    def _launched(self, handle: int, *given: Any) -> int:
        """`cuLaunchKernel`."""
        *sizes, _, stream, arguments, _ = given
        assert self.streams[-1].ptr == (stream or 0) and self.streams[-1].recorded is None
        self.launches += 1
        self.driven[handle]((ctypes.c_uint * 6)(*sizes), ctypes.c_void_p(arguments))
        return 0

    def _entry(self, code: CpuCuda, name: str) -> Callable[..., None]:
        function = getattr(code.library, f"launch_{name}")

        def launch(grid: Any, block: Any, args: Sequence[Any], shared_mem: int) -> None:
            dims = (ctypes.c_uint * 6)(*grid, *block)
            passed = [
                ctypes.c_void_p(a.ctypes.data)
                if isinstance(a, np.ndarray)
                else np.ctypeslib.as_ctypes_type(a.dtype)(a.item())
                for a in args
            ]
            recorded = self.streams[-1].recorded
            if recorded is not None:
                recorded.append(lambda: function(dims, *passed))
                return
            self.launches += 1
            function(dims, *passed)

        number = len(self.driven) + 1
        self.driven[number] = getattr(code.library, f"driven_{name}")
        launch.kernel = SimpleNamespace(ptr=number)  # type: ignore[attr-defined]
        return launch


def compile_as_text(source: str, arch: str, *, contract: bool) -> nvrtc.Compiled:
    """In the place of NVRTC: the source itself."""
    return nvrtc.Compiled(arch, "", source.encode(), {})
