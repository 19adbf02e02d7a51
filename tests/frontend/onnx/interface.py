"""What `relaxlab.from_onnx` promises beside the values of operators: functions that assert it, run
in an environment with onnx. `python -m tests.frontend.onnx.interface` prints a JSON object of what
is wrong."""

from __future__ import annotations

import json
import tempfile
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto, helper, numpy_helper

import relaxlab as rl
from relaxlab.frontend.table import UnsupportedOperators

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
W = np.arange(2048, dtype="float32").reshape(32, 64) / 1000


def model(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **weights: Any) -> Any:
    """A model of nodes; inputs and outputs are pairs of element type and dimensions."""
    ends = [
        [helper.make_tensor_value_info(n, t, d) for n, (t, d) in values.items()]
        for values in (inputs, outputs)
    ]
    arrays = [numpy_helper.from_array(v, n) for n, v in weights.items()]
    graph = helper.make_graph(nodes, "g", *ends, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def product() -> Any:
    """x @ W, in as many rows of 32 as there are."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "first"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["dims"], axis=0),
        helper.make_node("Reshape", ["x", "dims"], ["rows"]),
        helper.make_node("MatMul", ["rows", "w"], ["y"]),
    ]
    return model(
        nodes, {"x": (FLOAT, ["batch", 4, 8])}, {"y": (FLOAT, ["batch", 64])},
        w=W, first=np.array([0]), rest=np.array([-1]),
    )  # fmt: skip


def one_compilation_serves_all_sizes() -> None:
    """Shapes that are computed stay symbolic."""
    program = rl.from_onnx(product())
    assert "batch" in program.script()
    assert list(program.params) == ["w"]
    exe = program.compile()
    for n in (1, 5, 3):
        x = np.random.default_rng(n).random((n, 4, 8), dtype="float32")
        np.testing.assert_allclose(exe(x), x.reshape(n, 32) @ W, rtol=1e-4)
        np.testing.assert_allclose(exe(x=x), x.reshape(n, 32) @ W, rtol=1e-4)
    try:
        exe(x, x)
    except TypeError as error:
        assert "has the inputs x" in str(error)
    else:
        raise AssertionError("too many arguments are taken")


def data_in_other_files_are_mapped() -> None:
    """From a path, with the weights in a file of their own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        outside = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 1000}
        onnx.save(product(), path, **outside)
        program = rl.from_onnx(path)
        value = program.params["w"]
        assert isinstance(value.base, np.memmap)
        np.testing.assert_array_equal(value, W)


def what_is_no_model_is_refused() -> None:
    """Files and objects, with the way out."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        for content in (b"", b"\xff\xff"):
            path.write_bytes(content)
            try:
                rl.from_onnx(path)
            except ValueError as error:
                assert str(error).startswith(f"{path} holds no model of ONNX: "), error
            else:
                raise AssertionError(f"{content!r} is read as a model")
    try:
        rl.from_onnx(b"")
    except TypeError as error:
        assert str(error).startswith("expected a path or an onnx.ModelProto, not bytes; "), error
    else:
        raise AssertionError("bytes are taken")


def missing_operators_are_reported_together() -> None:
    """With counts, before anything is built."""
    nodes = [
        helper.make_node("MaxRoiPool", ["x", "g"], ["a"], pooled_shape=[4, 4]),
        helper.make_node("MaxRoiPool", ["x", "g"], ["b"], pooled_shape=[4, 4]),
        helper.make_node("DeformConv", ["a", "x", "x"], ["c"], kernel_shape=[2, 2]),
    ]
    image = (FLOAT, [1, 1, 4, 4])
    inputs = {"x": image, "g": (FLOAT, [1, 5]), "i": (INT64, [1, 1, 4, 4])}
    try:
        rl.from_onnx(model(nodes, inputs, {"c": (FLOAT, None)}))
    except UnsupportedOperators as error:
        text = str(error)
        assert "2 operators of this ONNX program" in text and "(2 calls)" in text, text
    else:
        raise AssertionError("nothing was reported")


def inputs_that_decide_shapes_are_constants() -> None:
    """The message says so, and `constants` gives them."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    reshaping = model(
        nodes, {"x": (FLOAT, ["n", 4]), "shape": (INT64, [2])}, {"y": (FLOAT, None)}
    )
    try:
        rl.from_onnx(reshaping)
    except UnsupportedOperators as error:
        assert "give its values by `constants`" in str(error)
    else:
        raise AssertionError("nothing was reported")
    program = rl.from_onnx(reshaping, constants={"shape": np.array([4, -1])})
    assert rl.interpret(program.module, "main", np.ones((3, 4), "float32")).shape == (4, 3)


def loops_of_a_symbolic_length() -> None:
    """A Scan over a symbolic axis is a function that calls itself and writes in place."""
    body = helper.make_graph(
        [helper.make_node("Add", ["sum", "row"], ["next"]),
         helper.make_node("Mul", ["next", "two"], ["out"])],
        "body",
        [helper.make_tensor_value_info(n, FLOAT, [3]) for n in ("sum", "row")],
        [helper.make_tensor_value_info(n, FLOAT, [3]) for n in ("next", "out")],
    )  # fmt: skip
    node = helper.make_node("Scan", ["start", "x"], ["end", "all"], body=body, num_scan_inputs=1)
    scanning = model(
        [node], {"start": (FLOAT, [3]), "x": (FLOAT, ["n", 3])},
        {"end": (FLOAT, [3]), "all": (FLOAT, ["n", 3])}, two=np.array([2.0], "float32"),
    )  # fmt: skip
    exe = rl.from_onnx(scanning).compile()
    for n in (1, 20):
        x = np.random.default_rng(n).random((n, 3), dtype="float32")
        end, every = exe(np.zeros(3, "float32"), x)
        np.testing.assert_allclose(every, 2 * np.cumsum(x, 0), rtol=1e-5)
        np.testing.assert_allclose(end, x.sum(0), rtol=1e-5)


def recurrent(kind: str, gates: int, direction: str, layout: int, length: int | str) -> Any:
    """A recurrent network over sequences of a length, with all of its results."""
    runs, rng = 2 if direction == "bidirectional" else 1, np.random.default_rng(1)
    weights = {
        "w": rng.standard_normal((runs, gates * 4, 3)).astype("float32"),
        "r": rng.standard_normal((runs, gates * 4, 4)).astype("float32"),
        "b": rng.standard_normal((runs, gates * 8)).astype("float32"),
    }
    outputs = ["y", "last", "cell"] if kind == "LSTM" else ["y", "last"]
    node = helper.make_node(
        kind, ["x", "w", "r", "b"], outputs, hidden_size=4, direction=direction, layout=layout
    )
    dims = ["batch", length, 3] if layout else [length, "batch", 3]
    ends: dict[str, Any] = dict.fromkeys(outputs, (FLOAT, None))
    return model([node], {"x": (FLOAT, dims)}, ends, **weights)


def sequences_of_a_symbolic_length() -> None:
    """The loop over a symbolic length gives what the steps that are written out give."""
    kinds = {"LSTM": 4, "GRU": 3, "RNN": 1}
    for kind, gates in kinds.items():
        for direction, layout in (("forward", 0), ("reverse", 1), ("bidirectional", 1)):
            exe = rl.from_onnx(recurrent(kind, gates, direction, layout, "length")).compile()
            for length, batch in ((1, 3), (6, 1)):
                shape = (batch, length, 3) if layout else (length, batch, 3)
                x = np.random.default_rng(length).standard_normal(shape).astype("float32")
                fixed = rl.from_onnx(recurrent(kind, gates, direction, layout, length))
                assert "loop" not in fixed.script() and "length" not in fixed.script()
                wanted = fixed.compile()(x)
                for got, want in zip(exe(x), wanted, strict=True):
                    np.testing.assert_allclose(got, want, atol=1e-5)


def images_in_batches_of_any_size_are_resized() -> None:
    """Axes that stay as long as they are need no known extent."""
    x = np.random.default_rng(0).random((3, 2, 4, 5), dtype="float32")
    for name, value in (("scales", [1, 1, 2, 2]), ("sizes", [0, 0, 8, 10])):
        nodes = [helper.make_node("Resize", ["x", "", name], ["y"], mode="linear")]
        given: dict[str, Any] = {name: np.array(value, "float32")}
        if name == "sizes":
            nodes = [
                helper.make_node("Shape", ["x"], ["s"], end=2),
                helper.make_node("Concat", ["s", "space"], ["sizes"], axis=0),
                helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
            ]
            given = {"space": np.array([8, 10])}
        ends = {"x": (FLOAT, ["batch", 2, 4, 5])}, {"y": (FLOAT, None)}
        resizing = model(nodes, *ends, **given)
        reference = onnx.reference.ReferenceEvaluator(resizing)
        got = rl.from_onnx(resizing).compile()(x)
        np.testing.assert_allclose(got, reference.run(None, {"x": x})[0], rtol=1e-5)


def weights_need_no_stated_types() -> None:
    """Weights whose types only they have, beside an operator that is taken apart."""
    nodes = [helper.make_node("Mul", ["x", "w"], ["h"]), helper.make_node("Gelu", ["h"], ["y"])]
    ends = {"x": (FLOAT, ["n", 64])}, {"y": (FLOAT, ["n", 64])}
    taken_apart = model(nodes, *ends, w=W[0])
    x = np.linspace(-2, 2, 128, dtype="float32").reshape(2, 64)
    reference = onnx.reference.ReferenceEvaluator(taken_apart)
    got = rl.from_onnx(taken_apart).compile()(x)
    np.testing.assert_allclose(got, reference.run(None, {"x": x})[0], atol=1e-5)


def loops_that_stack_values() -> None:
    """A Loop of as many iterations as an axis is long is a function that calls itself, too."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["still"]),
         helper.make_node("Gather", ["x", "i"], ["row"]),
         helper.make_node("Add", ["sum", "row"], ["next"]),
         helper.make_node("Neg", ["next"], ["out"])],
        "body",
        [value("i", INT64, []), value("on", TensorProto.BOOL, []), value("sum", FLOAT, [3])],
        [value("still", TensorProto.BOOL, []), value("next", FLOAT, [3]), value("out", FLOAT, [3])],
    )  # fmt: skip
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=0, end=1),
        helper.make_node("Squeeze", ["s"], ["n"]),
        helper.make_node("Loop", ["n", "", "start"], ["end", "all"], body=body),
    ]
    looping = model(
        nodes, {"start": (FLOAT, [3]), "x": (FLOAT, ["n", 3])},
        {"end": (FLOAT, [3]), "all": (FLOAT, ["n", 3])},
    )  # fmt: skip
    exe = rl.from_onnx(looping).compile()
    for n in (1, 20):
        x = np.random.default_rng(n).random((n, 3), dtype="float32")
        end, every = exe(np.zeros(3, "float32"), x)
        np.testing.assert_allclose(every, -np.cumsum(x, 0), rtol=1e-5)
        np.testing.assert_allclose(end, x.sum(0), rtol=1e-5)


def results_whose_number_is_data() -> None:
    """The boxes that are kept, among any number, and what is computed with them."""
    nodes = [
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["kept"]),
        helper.make_node("Mul", ["kept", "kept"], ["squares"]),
        helper.make_node("Unique", ["scores"], ["values", "first"]),
    ]
    found = model(
        nodes, {"boxes": (FLOAT, [1, "n", 4]), "scores": (FLOAT, [1, 1, "n"])},
        {"squares": (INT64, ["k", 3]), "values": (FLOAT, ["d"]), "first": (INT64, ["d"])},
        most=np.array([5]), overlap=np.array([0.5], "float32"),
    )  # fmt: skip
    exe = rl.from_onnx(found).compile()
    for n in (1, 6):
        corner = np.repeat(np.arange((n + 1) // 2) * 3, 2)[:n, None]  # every other one is twice
        boxes = np.concatenate([corner, corner, corner + 2, corner + 2], 1).astype("float32")
        scores = np.arange(n, 0, -1).astype("float32")
        squares, values, first = exe(boxes[None], scores[None, None])
        assert list(squares[:, 2]) == [i * i for i in range(0, n, 2)], squares
        assert list(values) == sorted(scores) and list(scores[first]) == list(values)


def shapes_that_a_model_states_are_checked() -> None:
    """A sum whose shape does not follow from those of its operands: positions up to 512 beside a
    sequence of any length. Its rank alone would not do for what reads its shape."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Slice", ["table", "zero", "n"], ["positions"]),
        helper.make_node("Add", ["x", "positions"], ["sum"]),
        helper.make_node("Shape", ["sum"], ["s"]),
        helper.make_node("Reshape", ["sum", "flat"], ["rows"]),
        helper.make_node("Reshape", ["rows", "s"], ["y"]),
    ]
    ends = {"x": (FLOAT, ["b", "n", 4])}, {"y": (FLOAT, ["b", "n", 4])}
    table = np.random.default_rng(0).random((512, 4), dtype="float32")
    adding = model(nodes, *ends, table=table, zero=np.array([0]), flat=np.array([-1, 4]))
    adding.graph.value_info.append(helper.make_tensor_value_info("sum", FLOAT, ["b", "n", 4]))
    exe = rl.from_onnx(adding).compile()
    x = np.ones((2, 7, 4), "float32")
    np.testing.assert_allclose(exe(x), x + table[:7])
    try:
        exe(np.ones((1, 600, 4), "float32"))
    except rl.CheckFailed as error:
        assert "512" in str(error) or "600" in str(error), error
    else:
        raise AssertionError("a sum of 600 and 512 elements was computed")


def sequences_are_known() -> None:
    """A split makes a known number of tensors, which are taken, moved and joined again."""
    nodes = [
        helper.make_node("SplitToSequence", ["x", "two"], ["parts"], axis=1),
        helper.make_node("SequenceAt", ["parts", "last"], ["part"]),
        helper.make_node("SequenceErase", ["parts", "last"], ["rest"]),
        helper.make_node("SequenceInsert", ["rest", "part", "zero"], ["turned"]),
        helper.make_node("ConcatFromSequence", ["turned"], ["y"], axis=1),
        helper.make_node("SequenceLength", ["parts"], ["count"]),
    ]
    turning = model(
        nodes, {"x": (FLOAT, ["n", 6])}, {"y": (FLOAT, ["n", 6]), "count": (INT64, [])},
        two=np.array(2), last=np.array(-1), zero=np.array(0),
    )  # fmt: skip
    x = np.arange(18, dtype="float32").reshape(3, 6)
    y, count = rl.interpret(rl.from_onnx(turning).module, "main", x)
    np.testing.assert_array_equal(y, x[:, [4, 5, 0, 1, 2, 3]])
    assert count == 3
    beyond = [nodes[0], helper.make_node("SequenceAt", ["parts", "fourth"], ["y"])]
    ends = {"x": (FLOAT, ["n", 6])}, {"y": (FLOAT, ["n", 2])}
    try:
        rl.from_onnx(model(beyond, *ends, two=np.array(2), fourth=np.array(3)))
    except UnsupportedOperators as error:
        assert "place 3 of a sequence of 3 tensors" in str(error), error
    else:
        raise AssertionError("a fourth of three tensors was taken")


CHECKS = (
    loops_that_stack_values, results_whose_number_is_data, sequences_are_known,
    shapes_that_a_model_states_are_checked,
    one_compilation_serves_all_sizes, data_in_other_files_are_mapped,
    what_is_no_model_is_refused, missing_operators_are_reported_together,
    inputs_that_decide_shapes_are_constants,
    loops_of_a_symbolic_length, sequences_of_a_symbolic_length,
    images_in_batches_of_any_size_are_resized, weights_need_no_stated_types,
)  # fmt: skip


def main() -> None:
    """Print what is wrong, by check."""
    found: dict[str, str | None] = {}
    for check in CHECKS:
        try:
            found[check.__name__] = check()
        except Exception:  # noqa: BLE001
            found[check.__name__] = traceback.format_exc()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
