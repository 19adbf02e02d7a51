"""Run inside an environment that has PyTorch and transformers: make a small Whisper, evaluate it.

Arguments: a folder. It gets the model as `save_pretrained` writes it, `answers.npz` (log-mel
frames, logits, inputs), and `texts.json` (what greedy decoding generates).
"""

import copy
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

torch: Any = import_module("torch")  # neither is in the environment that checks types
transformers: Any = import_module("transformers")

MEL, SOURCE, TARGET = 80, 30, 24
"""Bands, positions of the encoder and of the decoder."""
END, START, LANGUAGES, TASKS, NO_STAMPS = 80, 81, ("en", "de", "fr"), 85, 89
CASES = [(1, 60, 1), (2, 60, 5), (3, 14, 3), (1, 2, 2), (2, 46, 7)]
"""Batch, frames, tokens."""
PROMPTS = [("de", False), ("fr", True), (None, False), (None, True)]


def small_model() -> Any:
    config = transformers.WhisperConfig(
        vocab_size=120, num_mel_bins=MEL, d_model=48, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=80,
        decoder_ffn_dim=80, max_source_positions=SOURCE, max_target_positions=TARGET,
        pad_token_id=END, bos_token_id=END, eos_token_id=END, decoder_start_token_id=START,
        init_std=0.3,
    )  # fmt: skip
    model = transformers.WhisperForConditionalGeneration(config).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "layer_norm" in name:
            torch.nn.init.normal_(parameter, float("norm.w" in name), 0.2)
    torch.nn.init.zeros_(model.model.decoder.layer_norm.bias)  # for texts of various tokens
    torch.nn.init.normal_(model.model.decoder.embed_positions.weight, 0, 2.0)
    rules = model.generation_config
    rules.lang_to_id = {f"<|{name}|>": START + 1 + i for i, name in enumerate(LANGUAGES)}
    rules.task_to_id = {"translate": TASKS, "transcribe": TASKS + 1}
    rules.no_timestamps_token_id, rules.max_initial_timestamp_index = NO_STAMPS, 20
    rules.is_multilingual, rules.max_length = True, TARGET
    rules.suppress_tokens, rules.begin_suppress_tokens = [3, 5, 8], [END, 11]
    return model


def of_length(model: Any, frames: int) -> Any:
    """The same model for another number of frames: transformers wants exactly one."""
    other = copy.deepcopy(model)
    encoder = other.model.encoder
    encoder.config.max_source_positions = encoder.max_source_positions = frames // 2
    weight = encoder.embed_positions.weight[: frames // 2]
    encoder.embed_positions = torch.nn.Embedding.from_pretrained(weight)
    return other


def logits(model: Any, results: dict[str, np.ndarray]) -> None:
    for number, (batch, frames, tokens) in enumerate(CASES):
        features = torch.randn(batch, MEL, frames)
        ids = torch.randint(0, 120, (batch, tokens))
        found = of_length(model, frames)(input_features=features, decoder_input_ids=ids).logits
        row = {"features": features, "ids": ids.to(torch.int32), "logits": found}
        results |= {f"{number}.{key}": value.numpy() for key, value in row.items()}


def texts(model: Any, results: dict[str, np.ndarray]) -> list[Any]:
    found: list[Any] = []
    for language, timestamps in PROMPTS:
        for batch in (1, 3, 6):
            features = torch.randn(batch, MEL, 2 * SOURCE)
            results[f"text.{len(found)}"] = features.numpy()
            ids = model.generate(
                features, language=language, task="transcribe", return_timestamps=timestamps,
                do_sample=False, num_beams=1,
            )  # fmt: skip
            found.append({"language": language, "timestamps": timestamps, "ids": ids.tolist()})
    return found


def frames(results: dict[str, np.ndarray]) -> None:
    rng = np.random.default_rng(4)
    for bands in (80, 128):
        extractor = transformers.WhisperFeatureExtractor(bands)
        for number, samples in enumerate((700, 16000, 33333)):
            wave = np.sin(np.arange(samples) * 0.07) * 0.3 + rng.normal(size=samples) * 0.01
            audio = wave.astype(np.float32)
            padded = np.pad(audio, (0, 16000 * 3 - samples))
            results[f"mel.{bands}.{number}.audio"] = audio
            exact = extractor._np_extract_fbank_features(padded[None], "cpu")[0]
            results[f"mel.{bands}.{number}.exact"] = exact
            results[f"mel.{bands}.{number}.torch"] = extractor(
                audio, sampling_rate=16000, max_length=48000, return_tensors="np"
            ).input_features[0]


def main() -> None:
    folder = Path(sys.argv[1])
    torch.manual_seed(3)
    results: dict[str, np.ndarray] = {}
    with torch.no_grad():
        model = small_model()
        model.save_pretrained(folder)
        logits(model, results)
        (folder / "texts.json").write_text(json.dumps(texts(model, results)))
    frames(results)
    np.savez(folder / "answers.npz", **results)


main()
