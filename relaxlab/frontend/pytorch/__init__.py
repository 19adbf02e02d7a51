"""Programs of PyTorch: exported graphs of ATen calls become modules.

`torch.export` gives the graph (`export.py`). Operators that have a row of their own stay whole
(linear, attention, norms, softmax, convolutions), the others are taken apart by PyTorch's own
decompositions (`decompose.py`) until there are rows for all; what has neither is reported
(`importer.py`). Rows are in `rows_*.py`, a file per family.
"""
