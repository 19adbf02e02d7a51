"""`python -m relaxlab.tvm FILE [ARGUMENTS]`: run a program written for TVM with relaxlab."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from relaxlab.tvm.hook import install


def main(arguments: list[str]) -> None:
    """Run the file that `arguments` begins with, which sees the rest as its own."""
    if not arguments or not Path(arguments[0]).is_file():
        given = f"no file {arguments[0]!r}" if arguments else "no file given"
        sys.exit(f"{given}; usage: python -m relaxlab.tvm FILE [ARGUMENTS]")
    sys.argv = arguments
    sys.path[0] = str(Path(arguments[0]).resolve().parent)
    install()
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
