"""Search for schedules with which kernels are faster than by their rules.

`tune.py` goes through the kernels of a program, each alone (`kernels.py`); a search (`methods.py`)
proposes points, in the rules' decisions or in spaces (`plans.py`, `generic.py`), `children.py` and
`worker.py` build and measure them in other processes, `measured.py` says what is accepted,
`database.py` keeps it.
"""
