"""Values of the codes of quantised weight formats, for what reads files and what makes loops."""

IQ4_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
"""The sixteen levels of GGML's IQ4 formats, by their codes: closer together around zero, where most
weights are."""
