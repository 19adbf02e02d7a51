"""Running programs: arrays, the NumPy interpreter, the virtual machine and native executables."""
