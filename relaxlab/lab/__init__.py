"""Views of programs and of what the compiler does to them, for notebooks and pages.

This package alone knows HTML and JavaScript; it reads modules, traces, schedules and executables.
"""
