"""The table of ATen's operators."""

from relaxlab.frontend.table import Table

TABLE = Table("PyTorch")
row = TABLE.row
