"""Shared parts of the benchmarks of single kernels: cases, the run in turns, tables and charts."""
