"""Integer arithmetic on symbols: simplification, bounds and a three-valued prover."""

from relaxlab.analysis.arith.analyzer import Analyzer, prove_equal, simplify, wraps

__all__ = ["Analyzer", "prove_equal", "simplify", "wraps"]
