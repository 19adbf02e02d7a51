"""Programs whose rows are made by a product of few terms."""

from __future__ import annotations

from relaxlab.ir.module import Module
from relaxlab.script.parser import parse

LOW_RANK = {
    "rms norm": "R.nn.rms_norm(R.add(R.matmul(a, b), x), g, axes=[-1])",
    "rms norm of the product": "R.nn.rms_norm(R.matmul(a, b), g, axes=[-1])",
    "rms norm between exponentials": (
        "R.multiply(R.nn.rms_norm(R.add(R.matmul(a, b), R.exp(x)), g, axes=[-1]), R.exp(x))"
    ),
    "layer norm": "R.nn.layer_norm(R.add(R.matmul(a, b), x), g, g, axes=[-1])",
    "softmax": "R.nn.softmax(R.matmul(a, b))",
    "softmax, and more after it": "R.multiply(R.nn.softmax(R.nn.gelu(R.matmul(a, b))), x)",
    "sum": "R.sum(R.nn.relu(R.add(R.matmul(a, b), x)), axis=-1)",
}
"""Programs on rows of `a @ b`, with `x` of the same shape and weights `g`."""


def low_rank(kind: str, width: str = '"d"', terms: int = 8, dtype: str = "float32") -> Module:
    """A program `main(x, a, b, g)` of a symbolic number of rows. Raises KeyError for a kind that
    is not in `LOW_RANK`."""
    shapes = {"x": f'("n", {width})', "a": f'("n", {terms})', "b": f"({terms}, {width})"}
    shapes["g"] = f"({width},)"
    params = ", ".join(f'{name}: R.Tensor({shape}, "{dtype}")' for name, shape in shapes.items())
    return parse(f"""
@R.function
def main({params}):
    with R.dataflow():
        y = {LOW_RANK[kind]}
        R.output(y)
    return y
""")
