"""The view of predicted kernels under the roofline of a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import relaxlab as rl
from relaxlab.script import parse

ADD = parse("""
@R.function
def main(x: R.Tensor(("n", 4096), "float32")):
    with R.dataflow():
        y = R.add(R.multiply(x, x), x)
        R.output(y)
    return y
""")


def test_predictions_under_one_roof(open_view: Any) -> None:
    small, large = (rl.predict(ADD, "h200", n=n) for n in (64, 4096))
    view = rl.explore.predicted({"small": small, "large": large})
    assert "main memory" in view.text
    state = view.state["runs"][1]["profile"]
    (call,) = state["calls"]
    assert call["seconds"] == large.seconds
    assert call["cost"] == {"flops": 2 * 4096**2, "bytes": 2 * 4 * 4096**2}
    assert state["limits"]["levels"][-1]["bandwidth"] == 0.9 * 4.8e12
    page = open_view(view)
    assert page.locator("svg.roof circle").count() == 2
    assert "main memory" in page.locator("td").all_inner_texts()
    assert "Published figures of h200" in page.locator("p").first.text_content()


def test_predictions_of_one_gpu() -> None:
    with pytest.raises(ValueError, match="those given are for: none"):
        rl.explore.predicted({})
    both = {gpu: rl.predict(ADD, gpu, n=64) for gpu in ("a100", "h100")}
    with pytest.raises(ValueError, match="for one GPU; those given are for: a100, h100"):
        rl.explore.predicted(both)
