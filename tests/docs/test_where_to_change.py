"""The files that docs/where-to-change.md names exist."""

from __future__ import annotations

import re

from tests.test_repo import PACKAGE, ROOT

TEXT = (ROOT / "docs/where-to-change.md").read_text("utf-8")


def test_the_paths_exist() -> None:
    paths = [p for p in re.findall(r"`([\w*./]+)`", TEXT) if "/" in p and "NAME" not in p]
    assert len(paths) > 20
    missing = [
        p for p in paths if not any(True for root in (ROOT, PACKAGE) for _ in root.glob(p))
    ]
    assert not missing
