"""TVM's names over relaxlab: `import relaxlab.tvm as tvm` runs programs written for Apache TVM.

Old and new spellings are both here. `python -m relaxlab.tvm FILE` runs a file as it is, and after
`install()` the statement `import tvm` finds this package. Everything that a name does is in the
core; docs/from-tvm.md says what is different.
"""

from relaxlab.tvm import hook as hook
from relaxlab.tvm.accessors import add_accessors as _add_accessors
from relaxlab.tvm.names import names as _names

__version__ = "0.27.0"

_HOMES = {
    "DataType": "relaxlab.tvm.dtype:DataType",
    "IRModule": "relaxlab.tvm.ir.module:IRModule",
    "Object": "relaxlab.ir.node:Node",
    "TVMError": "relaxlab.tvm.error:TVMError",
    "instrument": "relaxlab.tvm.ir.instrument",
    "install": "relaxlab.tvm.hook:install",
    "build": "relaxlab.tvm.driver:build",
    "compile": "relaxlab.tvm.driver:build",
    "cpu": "relaxlab.tvm.runtime:cpu",
    "cuda": "relaxlab.tvm.runtime:cuda",
    "device": "relaxlab.tvm.runtime:device",
    "get_global_func": "relaxlab.tvm.runtime:get_global_func",
    "register_func": "relaxlab.tvm.runtime:register_func",
    "register_global_func": "relaxlab.tvm.runtime:register_global_func",
}

_add_accessors()
__getattr__, __dir__ = _names(__name__, _HOMES)
