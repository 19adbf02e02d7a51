"""Batches of a minibatch's dataflow graph: in which order, and where their operands lie.

`graph.py` holds the graph of the cells that a minibatch runs, `execution.py` runs it batch by
batch, `policies.py` chooses the batches, by machine code (`native.py`), and `bound.py` says how
few can do. `learn.py` learns a policy, `automaton.py` keeps it. `layout.py` orders the variables
of a block, by PQ-trees (`pq_tree.py`), so that batched kernels find their operands side by side.
"""
