"""The modules of `static/` without a page, under Node."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relaxlab.lab import assets
from tests.test_repo import ROOT

STATIC = ROOT / "relaxlab/lab/static"
NODE = shutil.which("node")
FORBIDDEN = ("innerHTML outerHTML insertAdjacentHTML document.write eval( fetch( XMLHttpRequest "
             "WebSocket </script").split()  # fmt: skip
KINDS = sorted(p.stem for p in STATIC.glob("*.js") if "export default" in p.read_text("utf-8"))


@pytest.mark.skipif(NODE is None, reason="needs Node (apt-get install nodejs)")
def test_units():
    tests = sorted(map(str, Path(__file__).parent.glob("js/*.test.mjs")))
    run = subprocess.run([str(NODE), "--test", *tests], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.skipif(NODE is None, reason="needs Node (apt-get install nodejs)")
def test_a_linked_view_is_a_module_that_renders(kind, tmp_path):
    file = tmp_path / "view.mjs"
    file.write_text(assets.link(kind), encoding="utf-8")
    script = (
        f"import one, {{views}} from '{file}';"
        f"if ([one, views['{kind}']].some((v) => typeof v.render !== 'function')) process.exit(1)"
    )
    subprocess.run([str(NODE), "--input-type=module", "-e", script], check=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_view_is_small(kind):
    assert len(assets.compressed(kind)) <= 25_000 * 4 / 3


@pytest.mark.parametrize("path", sorted(STATIC.glob("*.js")), ids=lambda p: p.name)
def test_text_never_becomes_markup_and_nothing_is_loaded(path):
    text = path.read_text("utf-8")
    for word in FORBIDDEN:
        assert word not in text, word
    assert set(re.findall(r"https?://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}
