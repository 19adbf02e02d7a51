"""relaxlab: a workbench for machine-learning compilers in pure Python."""
