"""`python -m relaxlab` is the command `relaxlab`."""

import sys

from relaxlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
