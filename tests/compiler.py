"""The C compiler that tests build exported libraries and programs with."""

import pytest

from relaxlab.runtime.export.export import ExportError, find_compiler


def compiler() -> list[str]:
    """The C compiler, or a skip that says that there is none."""
    try:
        return find_compiler()
    except ExportError as error:
        pytest.skip(str(error))
