"""CUDA C: the dialect, what its kernels call, PTX and machine code of it."""
