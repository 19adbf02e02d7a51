"""Passes over modules, one file each, and the host program they end in."""
