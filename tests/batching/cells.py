"""Kernels of the cells of dynamic networks, as examples of blocks whose variables are laid out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relaxlab.batching.layout import BlockKernel


class _Block:
    """Collects the kernels of a block over vectors of one size; a variable is its name."""

    def __init__(self, hidden: int) -> None:
        self.bytes = 4 * hidden
        self.kernels: list[BlockKernel] = []

    def add(self, name: str, of_type: str, *operands: str) -> str:
        """Add a kernel; names that no kernel has are inputs and weights."""
        numbers = {kernel.name: number for number, kernel in enumerate(self.kernels)}
        found = tuple(numbers.get(operand) for operand in operands)
        self.kernels.append(BlockKernel(name, of_type, found, (self.bytes,) * (1 + len(operands))))
        return name


def lstm_cell(hidden: int) -> list[BlockKernel]:
    """Return the kernels of an LSTM cell, the gates in the order input, forget, update, output that
    frameworks write them in."""
    block = _Block(hidden)
    for gate in ("i", "f", "u", "o"):
        block.add(f"{gate}_sum", "product", "xh", f"W_{gate}")
    for gate in ("i", "f", "u", "o"):
        block.add(gate, "tanh" if gate == "u" else "sigmoid", f"{gate}_sum")
    block.add("kept", "multiply", "f", "c")
    block.add("new", "multiply", "i", "u")
    block.add("c_next", "add", "kept", "new")
    block.add("c_tanh", "tanh", "c_next")
    block.add("h_next", "multiply", "o", "c_tanh")
    return block.kernels


def tree_lstm_cell(hidden: int) -> list[BlockKernel]:
    """Return the kernels of a binary TreeLSTM's inner cell: an input gate, two forget gates, an
    output gate and an update."""
    block = _Block(hidden)
    for gate in ("i", "fl", "fr", "o", "u"):
        block.add(f"{gate}_sum", "product", "lr", f"W_{gate}")
    for gate in ("i", "fl", "fr", "o", "u"):
        block.add(gate, "tanh" if gate == "u" else "sigmoid", f"{gate}_sum")
    block.add("kept_l", "multiply", "fl", "c_l")
    block.add("kept_r", "multiply", "fr", "c_r")
    block.add("new", "multiply", "i", "u")
    block.add("kept", "add", "kept_l", "kept_r")
    block.add("c_next", "add", "kept", "new")
    block.add("c_tanh", "tanh", "c_next")
    block.add("h_next", "multiply", "o", "c_tanh")
    return block.kernels


def gru_cell(hidden: int) -> list[BlockKernel]:
    """Return the kernels of a GRU cell: reset, update and candidate, each of a product with the
    input and one with the state."""
    block = _Block(hidden)
    for gate in ("r", "n", "z"):
        block.add(f"{gate}_x", "product", "x", f"W_{gate}")
        block.add(f"{gate}_h", "product", "h", f"U_{gate}")
    for gate in ("r", "z"):
        block.add(f"{gate}_sum", "add", f"{gate}_x", f"{gate}_h")
        block.add(gate, "sigmoid", f"{gate}_sum")
    block.add("reset", "multiply", "r", "n_h")
    block.add("n_sum", "add", "n_x", "reset")
    block.add("n", "tanh", "n_sum")
    block.add("stay", "multiply", "z", "h")
    block.add("z_rest", "complement", "z")
    block.add("go", "multiply", "z_rest", "n")
    block.add("h_next", "add", "stay", "go")
    return block.kernels


CELLS: Mapping[str, Callable[[int], list[BlockKernel]]] = {
    "LSTM": lstm_cell, "TreeLSTM": tree_lstm_cell, "GRU": gru_cell,
}  # fmt: skip
"""The kernels of cells by name, of the size of the state."""
