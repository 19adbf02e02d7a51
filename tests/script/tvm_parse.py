"""Run inside the environment that has apache-tvm: parse scripts with TVM's own parser.

Reads a JSON object {name: text} from standard input, writes {name: [error or null, TVM's own
print of the program or null]} to standard output.
"""

import importlib.util
import json
import pathlib
import sys
import tempfile

import tvm


def answer(name: str, text: str, folder: pathlib.Path) -> tuple[str | None, str | None]:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the decorators look the module up by name
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever TVM raises is the answer
        return f"{type(error).__name__}: {error}", None
    made = next((v for v in vars(module).values() if isinstance(v, tvm.IRModule)), None)
    return None, None if made is None else made.script()


def main() -> None:
    texts = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        where = pathlib.Path(folder)
        results = {name: answer(name, text, where) for name, text in texts.items()}
    print(json.dumps(results))


main()
