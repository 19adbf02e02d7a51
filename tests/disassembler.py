"""The mark of tests that compile CUDA kernels and look at their machine code."""

import pytest

from relaxlab.codegen.cuda import nvrtc, sass

needs_disassembler = pytest.mark.skipif(
    not (nvrtc.is_available() and sass.is_available()), reason="needs NVRTC and nvdisasm"
)
