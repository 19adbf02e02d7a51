"""The NumPy interpreter: the meaning of both levels of the IR."""
