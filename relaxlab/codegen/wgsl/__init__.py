"""WGSL, the language of WebGPU: the dialect, and what its kernels call."""
