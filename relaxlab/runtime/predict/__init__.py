"""Seconds of GPU kernels, predicted from the work of single blocks."""
