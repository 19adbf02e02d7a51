"""The parts of CUDA are found where wheels and toolkits put them."""

from __future__ import annotations

from pathlib import Path

import pytest

from relaxlab.codegen.cuda import nvrtc, toolkit

CUDA_13 = ("nvidia.cu13",)
CUDA_12 = ("nvidia.cuda_nvrtc", "nvidia.cuda_runtime")


@pytest.fixture(autouse=True)
def nothing_remembered():
    toolkit.find_toolkit.cache_clear()
    nvrtc._library.cache_clear()
    yield
    toolkit.find_toolkit.cache_clear()
    nvrtc._library.cache_clear()


def wheels(folder: Path, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Make only these packages installed, below a folder."""
    known = {name: folder / name.replace(".", "/") for name in names}
    monkeypatch.setattr(toolkit, "_packages", lambda name: [known[name]] if name in known else [])
    monkeypatch.setattr(toolkit, "_installed", lambda: [folder / "cuda"])


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def test_wheels_of_cuda_13(tmp_path, monkeypatch):
    wheels(tmp_path, monkeypatch, *CUDA_13, *CUDA_12)
    here = tmp_path / "nvidia" / "cu13"
    put(here / "lib" / "libnvrtc.so.13", here / "include" / "cuda_fp16.h")
    assert toolkit.find_toolkit() == toolkit.Toolkit(here / "lib/libnvrtc.so.13", here / "include")


def test_wheels_of_cuda_12_beside_a_disassembler_of_13(tmp_path, monkeypatch):
    wheels(tmp_path, monkeypatch, *CUDA_13, *CUDA_12)
    put(tmp_path / "nvidia/cu13/bin/nvdisasm")
    library = tmp_path / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12"
    header = tmp_path / "nvidia/cuda_runtime/include/cuda_fp16.h"
    put(library, header)
    assert toolkit.find_toolkit() == toolkit.Toolkit(library, header.parent)


def test_an_installed_toolkit(tmp_path, monkeypatch):
    wheels(tmp_path, monkeypatch)
    library = tmp_path / "cuda/lib64/libnvrtc.so.13"
    put(library, tmp_path / "cuda/include/cuda_fp16.h")
    assert toolkit.find_toolkit() == toolkit.Toolkit(library, tmp_path / "cuda/include")


def test_a_library_without_headers_is_none(tmp_path, monkeypatch):
    wheels(tmp_path, monkeypatch, *CUDA_13)
    put(tmp_path / "nvidia/cu13/lib/libnvrtc.so.13")
    assert toolkit.find_toolkit() is None
    with pytest.raises(nvrtc.NvrtcError, match=r"not in .*cu13/lib.*pip install"):
        nvrtc.compile_cuda("", "sm_80")
