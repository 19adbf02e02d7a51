"""Loop functions bound to GPU threads: to launches, to CUDA C, to PTX and cubin."""
