"""The SIMT interpreter: GPU kernels on simulated threads."""
