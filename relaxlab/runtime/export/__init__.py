"""Compiled programs as shared libraries for C, and those libraries as executables."""
