"""TVM's names over relaxlab: `import relaxlab.tvm as tvm` runs programs written for Apache TVM.

Old and new spellings are both here. `python -m relaxlab.tvm FILE` runs a file as it is, and after
`install()` the statement `import tvm` finds this package. Everything that a name does is in the
core; docs/from-tvm.md says what is different.
"""

from relaxlab.tvm.names import names as _names

__version__ = "0.27.0"

_HOMES = {
    "IRModule": "relaxlab.tvm.ir:IRModule",
    "install": "relaxlab.tvm.hook:install",
}

__getattr__, __dir__ = _names(__name__, _HOMES)
