"""The virtual machine, which steps through host programs, with NumPy or on a GPU."""
