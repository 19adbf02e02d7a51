"""What the benchmarks of single kernels share: cases, the run in turns, tables and charts."""
