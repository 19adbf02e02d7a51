"""`relaxlab embed` and `relaxlab transcribe`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from relaxlab.cli import main
from relaxlab.cli.transcribe import read_sound
from relaxlab.models.mel import RATE
from relaxlab.models.text_encoder import BertEncoder
from relaxlab.models.transcriber import Transcriber
from tests.models.test_sentence import folder as encoder_folder  # noqa: F401  fixture
from tests.models.test_whisper import folder as speech_folder  # noqa: F401  fixture

soundfile = pytest.importorskip("soundfile", reason="needs soundfile (pip install -e '.[dev]')")


def tone(rate: int, seconds: float) -> np.ndarray:
    """440 Hz on the left, silence on the right."""
    left = np.sin(2 * np.pi * 440 * np.arange(int(rate * seconds)) / rate)
    return np.stack([left, np.zeros_like(left)], axis=1)


def test_vectors_of_texts(encoder_folder, capsys, monkeypatch, tmp_path):  # noqa: F811
    lines = ["a cat sat .", "rain"]
    want = BertEncoder.from_pretrained(encoder_folder).encode(lines)
    assert main(["embed", "--model", str(encoder_folder), *lines]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(printed, want, rtol=1e-6)
    target = tmp_path / "vectors.npy"
    assert main(["embed", "--model", str(encoder_folder), *lines, "-o", str(target)]) == 0
    assert np.array_equal(np.load(target), want)
    assert main(["embed", "--model", str(encoder_folder), "x", "-o", "vectors.txt"]) == 2
    assert "vectors.txt: the array is written as .npy" in capsys.readouterr().err


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_sound_becomes_one_channel_at_the_rate_of_the_model(tmp_path: Path, rate: int) -> None:
    file = tmp_path / "tone.wav"
    soundfile.write(file, tone(rate, 0.5), rate)
    samples = read_sound(str(file))
    assert samples.dtype == np.float32 and abs(len(samples) - RATE // 2) <= 1
    spectrum = np.abs(np.fft.rfft(samples))
    assert spectrum.argmax() * RATE / len(samples) == pytest.approx(440, abs=2)
    assert np.abs(samples[1000:-1000]).max() == pytest.approx(0.5, abs=0.01)


def test_transcripts_of_files(speech_folder, capsys, tmp_path):  # noqa: F811
    transcriber = Transcriber.from_pretrained(speech_folder)
    file = tmp_path / "tone.wav"
    soundfile.write(file, tone(RATE, 0.4), RATE, subtype="FLOAT")
    (want,) = transcriber.transcribe([read_sound(str(file))], language="en")
    command = ["transcribe", "--model", str(speech_folder), "--language", "en"]
    assert main([*command, str(file), str(file)]) == 0
    expected = f"> {file}\n{want.text.strip()}\n"
    assert capsys.readouterr().out == 2 * expected
    assert main([*command, "--json", str(file)]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == want.text


def test_files_that_are_no_sound(capsys, tmp_path):
    text = tmp_path / "text.wav"
    text.write_text("no sound")
    assert main(["transcribe", "--model", "any", str(text)]) == 2
    assert f"{text}: no sound that can be read" in capsys.readouterr().err
    assert main(["transcribe", "--model", "any", str(tmp_path / "none.wav")]) == 2
    assert "none.wav: No such file" in capsys.readouterr().err
