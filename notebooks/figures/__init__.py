"""Drawings of the labs: `from figures import lab6 as figure`, then `figure.machine()`."""
