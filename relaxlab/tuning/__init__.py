"""Search for decisions with which kernels are faster than with their rules' defaults.

`tune.py` goes through the kernels of a program, each alone (`kernels.py`); `search.py` proposes
decisions, `children.py` and `worker.py` build and measure them in other processes, `measured.py`
says what is accepted, `database.py` keeps it.
"""
