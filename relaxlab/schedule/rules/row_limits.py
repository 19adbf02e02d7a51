"""Limits of row kernels, known to fusion, which forms the kernels, and to the rule `rows`."""

MAX_STACK_ROW = 8192
"""The widest row of symbolic width of which a thread's stack keeps intermediates: 32 KB of float32,
so that with what is read and written a row stays in a second-level cache. Exponentials that went
through main memory instead cost more than computing them twice (benchmarks/NOTES.md, *Rows of
symbolic width*)."""

MAX_INLINE_REDUCTION = 16
"""Longest sum of products that makes rows where they are read. It is unrolled; beyond that, reading
the shared operand again for every row costs more than to store and load rows (NOTES, *Products by a
small matrix*)."""
