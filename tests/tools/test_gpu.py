"""The command that runs everything that needs a GPU, on stages that need none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import gpu
from tools.gpu import Stage, main

FAILS = """
import json, sys
with open(sys.argv[-1] + "/tests.jsonl", "w") as file:
    for test, error in (("good", None), ("bad", "Traceback\\n  ...\\nValueError: too few")):
        line = {"test": test} | ({"error": error} if error else {})
        file.write(json.dumps(line) + "\\n")
sys.exit(1)
"""


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {
        "doctor": Stage(("-c", "print('all is well')"), 0.5),
        "tests": Stage(("-c", FAILS), 0.5),
        "kernels": Stage(("-c", "import time; time.sleep(60)"), 0.01),
    }
    monkeypatch.setattr(gpu, "STAGES", made)


def test_an_unknown_stage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["tets", "--out", str(tmp_path / "out")])
    assert "no stage is called 'tets'; there are: doctor, tests" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.usefixtures("stages")
def test_the_summary_names_what_failed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # Lines of an earlier run, of a stage that runs again, and of one that does not.
    for name in ("doctor", "models"):
        line = {"case": name, "error": "of an earlier run"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(line) + "\n")
    assert main(["doctor", "tests", "--seconds", "60", "--out", str(tmp_path)]) == 1
    said, summary = capsys.readouterr().out.split("=== summary ===")
    assert "all is well" in said
    doctor, tests, *failures = summary.strip().splitlines()
    assert doctor.startswith("doctor     passed after")
    assert tests.startswith("tests      failed with 1 after")
    assert failures == ["  bad: ValueError: too few"]
    outcomes = [json.loads(line) for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert [o["stage"] for o in outcomes] == ["doctor", "tests"]


@pytest.mark.usefixtures("stages")
def test_a_stage_ends_with_its_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["kernels", "--seconds", "0.5", "--out", str(tmp_path)]) == 1
    assert "kernels    was stopped after" in capsys.readouterr().out
