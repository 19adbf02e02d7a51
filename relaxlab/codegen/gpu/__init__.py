"""Code for GPUs: launches, barriers, shared and private memory, and their text in a dialect."""
