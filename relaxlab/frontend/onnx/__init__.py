"""Programs from ONNX files.

`importer.py` reads a model and walks its graph; the other modules have a row for each operator in
the one table of `rows.py`, with the versions of the operator sets in which it changed.
"""
