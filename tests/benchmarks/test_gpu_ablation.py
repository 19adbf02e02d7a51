"""The variants that are compared on a GPU, as they are compiled without one."""

from __future__ import annotations

import relaxlab as rl
from benchmarks.bench_gpu_ablation import OF_PROCESSORS
from benchmarks.variants import VARIANTS
from relaxlab.ir import host
from relaxlab.ir.target import Target
from relaxlab.passes.pipeline import cuda_pipeline
from relaxlab.script import parse

TARGET = Target.cuda("sm_90a")
PROGRAM = """
@R.function
def main(x: R.Tensor(("n", 64), "float32"), w: R.Tensor((64, 64), "float32"),
         b: R.Tensor((64,), "float32")):
    with R.dataflow():
        y = R.nn.gelu(R.add(R.matmul(x, w), b))
        z = R.nn.softmax(R.add(R.matmul(y, w), x))
        R.output(z)
    return z
"""


def test_every_variant_leaves_out_what_it_says() -> None:
    kernels: dict[str, int] = {}
    allocated: dict[str, int] = {}
    versions: dict[str, int] = {}
    for name in (v for v in VARIANTS if v not in OF_PROCESSORS):
        pipeline = VARIANTS[name](cuda_pipeline(TARGET))
        exe = rl.compile(parse(PROGRAM), target=TARGET, pipeline=pipeline)
        instrs = exe.program.functions["main"].instrs
        kernels[name] = sum(isinstance(i, host.CallKernel) for i in instrs)
        allocated[name] = sum(isinstance(i, host.Alloc) for i in instrs)
        called = {i.function for i in instrs if isinstance(i, host.CallKernel)}
        versions[name] = sum(len(exe.gpu.kernels[f].launches) for f in called)
    assert kernels["without fusion"] > kernels["everything"]
    assert allocated["without memory planning"] > allocated["everything"]
    assert versions["without versions for one row"] < versions["everything"]
