"""Kernels and models on a GPU, against PyTorch on the same GPU."""
