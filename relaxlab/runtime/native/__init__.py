"""Executables: machine code, and its calls from Python."""
