"""The marker `gpu`: a test that runs kernels on a GPU, and is skipped where there is none."""

from __future__ import annotations

import pytest

from relaxlab.runtime.vm.cuda import require_cupy
from relaxlab.runtime.vm.gpu import NoGpu


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: runs kernels on a GPU")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if not marked:
        return
    try:
        require_cupy()
    except NoGpu as error:
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=str(error).partition(";")[0]))
