"""Drawings of the lessons: `from figures import lesson1 as figure`, then `figure.row_major()`."""
