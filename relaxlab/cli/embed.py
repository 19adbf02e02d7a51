"""`relaxlab embed`: vectors of texts."""

from __future__ import annotations

import argparse
import json
import sys

import numpy as np

from relaxlab.cli.options import UsageError
from relaxlab.cli.progress import Progress
from relaxlab.models.text_encoder import BertEncoder


def run(options: argparse.Namespace) -> int:
    """Print the vector of each text, or write all of them to a file."""
    if options.output and not options.output.endswith(".npy"):
        raise UsageError(f"{options.output}: the array is written as .npy; end the name with it")
    texts: list[str] = []
    for text in options.texts:
        texts += sys.stdin.read().splitlines() if text == "-" else [text]
    with Progress() as progress:
        progress(f"loading {options.model}")
        encoder = BertEncoder.from_pretrained(
            options.model, threads=options.threads, use_cache=not options.no_cache
        )
    vectors = encoder.encode(texts)
    if options.output:
        np.save(options.output, vectors)
    else:
        for vector in vectors:
            print(json.dumps([float(f"{v:.8g}") for v in vector]))
    return 0
