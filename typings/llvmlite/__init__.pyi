"""Types of what relaxlab uses of llvmlite, which ships none."""

__version__: str
