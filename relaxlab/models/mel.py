"""Log-mel spectrograms of speech, the input of Whisper, in NumPy.

Frames of 25 ms every 10 ms, 80 or 128 bands on Slaney's mel scale up to 8 kHz; logarithms are cut
off 8 decades below the loudest band and brought into a small range.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

RATE = 16_000
"""Samples per second."""
HOP = 160
"""Samples from one frame to the next."""
FRAME = 400
"""Samples of a frame."""


def samples_of(recording: Any, what: str) -> Array:
    """A recording, one number per sample, as an array. ValueError for what are no samples."""
    array = np.asarray(recording)
    if array.ndim != 1 or array.dtype.kind != "f":
        raise ValueError(
            f"{what} must be a one-dimensional array of floats from -1 to 1, is {array.dtype} "
            f"{array.shape}; divide whole numbers by their largest, average channels"
        )
    wrong = np.flatnonzero(~np.isfinite(array))
    if wrong.size:
        raise ValueError(f"{what} has samples that are not finite, the first at {wrong[0]}")
    return array


def log_mel(audio: Array, bands: int, samples: int | None = None) -> Array:
    """audio float (n,) at `RATE` samples per second -> float32 (bands, n // HOP).

    With `samples`, the audio is first cut to that many, or filled up with silence. ValueError for
    audio shorter than half a frame. Sums are float64.
    """
    signal = np.asarray(audio[:samples], np.float64)
    if samples is not None:
        signal = np.pad(signal, (0, samples - len(signal)))
    if len(signal) <= FRAME // 2:
        raise ValueError(f"audio must have more than {FRAME // 2} samples, has {len(signal)}")
    mirrored = np.pad(signal, FRAME // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(mirrored, FRAME)[::HOP]
    frames = frames[: len(signal) // HOP]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FRAME) / FRAME)
    power = np.abs(np.fft.rfft(frames * hann, axis=1)) ** 2
    # Silence has no logarithm; 1e-10 is the floor that Whisper was trained with.
    energy = np.maximum(power @ mel_filters(bands), 1e-10)
    logarithm = np.log10(energy)
    logarithm = np.maximum(logarithm, logarithm.max() - 8.0)
    return ((logarithm + 4.0) / 4.0).T.astype(np.float32)


@cache
def mel_filters(bands: int) -> Array:
    """Triangles of area 1 over the frequencies of a frame's spectrum: (FRAME / 2 + 1, bands).

    Slaney's mel scale is linear up to 1 kHz (15 mel) and logarithmic above.
    """
    frequencies = np.linspace(0, RATE / 2, FRAME // 2 + 1)
    per_octave = 27.0 / np.log(6.4)
    mels = np.linspace(0, 15.0 + np.log(RATE / 2 / 1000.0) * per_octave, bands + 2)
    edges = np.where(mels < 15.0, mels * 200.0 / 3.0, 1000.0 * np.exp((mels - 15.0) / per_octave))
    left, centre, right = edges[:-2], edges[1:-1], edges[2:]
    at = frequencies[:, None]
    rise, fall = (at - left) / (centre - left), (right - at) / (right - centre)
    return np.maximum(0, np.minimum(rise, fall)) * (2.0 / (right - left))
