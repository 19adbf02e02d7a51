"""Llama configurations from both sources, and clear errors where a key is missing or absurd."""

import json

import numpy as np
import pytest

from relaxlab.models.config import ConfigError, DecoderConfig, Rope
from relaxlab.models.families import config_from_gguf, config_from_json
from relaxlab.models.gguf import GGUFTensor, read_gguf, write_gguf

METADATA = {
    "general.architecture": "llama",
    "llama.block_count": 1,
    "llama.context_length": 64,
    "llama.embedding_length": 32,
    "llama.feed_forward_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}
JSON = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
}
EXPECTED = DecoderConfig(
    hidden_size=32, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=8, ffn_size=64,
    vocab_size=96, context_length=64, norm_eps=float(np.float32(1e-5)),
    rope=Rope(10000.0, 8, interleaved=True), tied_embeddings=True,
)  # fmt: skip


def open_model(tmp_path, metadata, change=None, drop=()):
    shapes = {n: s for n, s in EXPECTED.tensor_shapes().items() if n not in drop} | (change or {})
    tensors = [GGUFTensor.quantised(n, np.ones(s, np.float32), "F32") for n, s in shapes.items()]
    path = tmp_path / "m.gguf"
    write_gguf(path, metadata, tensors)
    return read_gguf(path)


def open_json(tmp_path, values):
    path = tmp_path / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return config_from_json(path)


def test_from_gguf(tmp_path):
    model = open_model(tmp_path, METADATA)
    assert config_from_gguf(model) == EXPECTED
    untied = open_model(tmp_path, METADATA, {"output.weight": (96, 32)})
    assert not config_from_gguf(untied).tied_embeddings


def test_smollm2(smollm2):
    config = config_from_gguf(smollm2)
    assert (config.num_layers, config.num_heads, config.num_kv_heads) == (30, 9, 3)
    assert (config.head_dim, config.vocab_size, config.rope.theta) == (64, 49152, 1e5)
    assert config.tied_embeddings


def test_from_json(tmp_path):
    config = open_json(tmp_path, JSON)
    assert (config.norm_eps, config.rope.interleaved) == (1e-5, False)
    assert config.tensor_shapes() == EXPECTED.tensor_shapes()


def test_frequencies():
    expected = [1, 10000**-0.25, 10000**-0.5, 10000**-0.75]
    np.testing.assert_allclose(EXPECTED.rope.inverse_frequencies(), expected, rtol=1e-6)


def test_linear_rope_scaling(tmp_path):
    scaling = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    config = config_from_gguf(open_model(tmp_path, METADATA | scaling))
    np.testing.assert_allclose(
        config.rope.inverse_frequencies(), EXPECTED.rope.inverse_frequencies() / 4, rtol=1e-6
    )
    same = open_json(tmp_path, JSON | {"rope_scaling": {"type": "linear", "factor": 4.0}})
    assert same.rope.divisors == config.rope.divisors


def test_llama3_rope_scaling(tmp_path):
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}  # fmt: skip
    values = JSON | {"rope_scaling": scaling, "head_dim": 128, "rope_theta": 500000.0}
    config = open_json(tmp_path, values)
    for freq, got in zip(500000.0 ** -(np.arange(64) / 64), config.rope.divisors, strict=True):
        wavelength = 2 * np.pi / freq
        if wavelength < 8192 / 4:
            expected = 1
        elif wavelength > 8192:
            expected = 8
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            expected = freq / ((1 - smooth) * freq / 8 + smooth * freq)
        assert got == pytest.approx(expected)


def test_yarn_rope_scaling(tmp_path):
    """Qwen2.5 and Qwen3: as much context as the factor says; the scale of cosines and sines is
    given, made of two others, or the logarithm's."""
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
    values = JSON | {"head_dim": 128, "rope_theta": 1e6, "rope_scaling": scaling}
    config = open_json(tmp_path, values)
    assert config.context_length == config.rope.reach == 131072
    assert config.rope.scale == pytest.approx(0.1 * np.log(4) + 1)
    turns = 32768 * 1e6 ** -(np.arange(64) / 64) / (2 * np.pi)
    divisors = np.array(config.rope.divisors)
    assert (divisors[turns > 40] == 1).all() and (divisors[turns < 0.8] == 4).all()
    assert (np.diff(divisors) >= 0).all() and len(set(divisors)) > 10

    def scale(**more):
        return open_json(tmp_path, values | {"rope_scaling": scaling | more}).rope.scale

    assert scale(attention_factor=1.5) == 1.5
    both = (1 + 0.1 * 0.5 * np.log(4)) / (1 + 0.1 * np.log(4))
    assert scale(mscale=0.5, mscale_all_dim=1.0) == pytest.approx(both)
    assert scale(mscale=0.5) == pytest.approx(0.1 * np.log(4) + 1)
    rounded = open_json(tmp_path, values | {"rope_scaling": scaling | {"truncate": False}}).rope
    assert rounded.divisors != config.rope.divisors


def test_stored_rope_divisors(tmp_path):
    config = config_from_gguf(open_model(tmp_path, METADATA, {"rope_freqs.weight": (4,)}))
    assert config.rope.divisors == (1, 1, 1, 1)
    with pytest.raises(ConfigError, match="3 rope divisors for 4 pairs"):
        config_from_gguf(open_model(tmp_path, METADATA, {"rope_freqs.weight": (3,)}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "mamba"}, "the architecture 'mamba' is not supported; llama"),
        ({"llama.block_count": None}, "the key 'llama.block_count' is missing"),
        ({"llama.block_count": "x"}, "'llama.block_count' must be a number, is 'x'"),
        ({"llama.block_count": 0}, "num_layers must be positive"),
        ({"llama.block_count": 2**31}, "2147483648 layers, but only 11 tensors"),
        ({"llama.attention.key_length": 2**31}, "head_dim is 2147483648, more than 4096"),
        ({"llama.attention.head_count": 0}, "num_heads must be positive"),
        ({"llama.attention.head_count_kv": 3}, "4 attention heads cannot share 3"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "norm_eps must be positive"),
        ({"llama.attention.key_length": 7}, "an even number of features, is 7"),
        ({"llama.rope.dimension_count": 12}, "12 rotated features in heads of 8"),
        ({"llama.rope.scaling.type": "ntk"}, "rope scaling 'ntk' is not supported"),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 0.5},
            "YaRN needs a factor of at least 1",
        ),
        (
            {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.yarn_ext_factor": 0.5},
            "and to extrapolate",
        ),
    ],
)
def test_bad_metadata_is_named(change, message, tmp_path):
    metadata = {k: v for k, v in (METADATA | change).items() if v is not None}
    with pytest.raises(ConfigError, match=message):
        config_from_gguf(open_model(tmp_path, metadata))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "must hold a JSON object"),
        ({"model_type": "bert"}, "model_type 'bert'"),
        ({"model_type": "llama"}, "config.json: the key 'vocab_size' is missing"),
        (JSON | {"num_hidden_layers": 10**9}, "1000000000 layers, more than 4096"),
        (JSON | {"rope_scaling": {"type": "dynamic"}}, "rope scaling 'dynamic'"),
        (JSON | {"rope_scaling": {"type": "yarn", "beta_slow": 0}}, "YaRN needs a positive"),
        (JSON | {"rope_scaling": 3}, "rope_scaling must be an object"),
        (JSON | {"rope_scaling": {"type": "linear"}}, "rope_scaling: the key 'factor'"),
        (JSON | {"rope_scaling": {"type": "linear", "factor": 0}}, "divisor must be positive"),
    ],
)
def test_bad_json_is_named(values, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        open_json(tmp_path, values)


@pytest.mark.parametrize(
    ("change", "drop", "message"),
    [
        ({}, ["blk.0.attn_q.weight"], "no tensor 'blk.0.attn_q.weight'"),
        ({"blk.0.ffn_up.weight": (32, 64)}, [], r"shape \(32, 64\), expected \(64, 32\)"),
        ({"blk.0.attn_q.bias": (32,)}, [], "no tensor 'blk.0.attn_k.bias'"),
        ({"blk.0.attn_x.bias": (32,)}, [], "llama model has no use for: blk.0.attn_x.bias"),
    ],
)
def test_weights_are_checked(change, drop, message, tmp_path):
    model = open_model(tmp_path, METADATA, change, drop)
    with pytest.raises(ValueError, match=message):
        config_from_gguf(model)


GEMMA3 = {
    "model_type": "gemma3_text", "hidden_size": 32, "num_hidden_layers": 7,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64,
    "vocab_size": 96, "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "sliding_window": 8,
}  # fmt: skip


def test_defaults_of_published_files(tmp_path):
    """Older files of Gemma 3 have neither `layer_types` nor `rope_parameters`, and say neither that
    embeddings are tied nor how scores are scaled."""
    old = GEMMA3 | {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 5e5,
                    "rope_local_base_freq": 2e4}  # fmt: skip
    config = open_json(tmp_path, old)
    assert config.windows == (8, 8, 8, 8, 8, None, 8)
    assert config.rope == Rope(5e5, 16, divisors=(8.0,) * 8)
    assert config.local_rope == Rope(2e4, 16)
    assert (config.tied_embeddings, config.attention_scale) == (True, 1 / 16)
    assert config.tensor_shapes()["blk.6.post_ffw_norm.weight"] == (32,)
    kinds = ["full_attention", "sliding_attention"] * 3 + ["full_attention"]
    assert open_json(tmp_path, old | {"layer_types": kinds}).windows[:3] == (None, 8, None)


def test_windows_that_are_not_in_use(tmp_path):
    qwen = JSON | {"model_type": "qwen2", "sliding_window": 8, "max_window_layers": 0}
    assert open_json(tmp_path, qwen | {"use_sliding_window": False}).windows == ()
    assert open_json(tmp_path, qwen | {"use_sliding_window": True}).windows == (8,)
    mistral = JSON | {"model_type": "mistral"}
    assert open_json(tmp_path, mistral | {"sliding_window": None}).windows == ()


def test_long_rope(tmp_path):
    scaling = {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    phi = JSON | {"model_type": "phi3", "original_max_position_embeddings": 16}
    rope = open_json(tmp_path, phi | {"rope_scaling": scaling}).rope
    assert rope.scale == pytest.approx((1 + np.log(64 / 16) / np.log(16)) ** 0.5)
    ratio = rope.inverse_frequencies(16) / rope.inverse_frequencies(17)
    np.testing.assert_allclose(ratio, 2.0)
    cos, sin = rope.tables(64)
    np.testing.assert_allclose(cos**2 + sin**2, rope.scale**2, rtol=1e-6)
    with pytest.raises(ConfigError, match="'long_factor' must be a list of numbers, is 2"):
        open_json(tmp_path, phi | {"rope_scaling": scaling | {"long_factor": 2}})
    with pytest.raises(ConfigError, match="3 rope divisors for 4 pairs"):
        open_json(tmp_path, phi | {"rope_scaling": scaling | {"long_factor": [1.0] * 3}})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model_type": "mamba"}, "the model_type 'mamba' is not supported; llama, mistral, qwen2"),
        (JSON | {"hidden_act": "relu2"}, "'hidden_act' 'relu2' is not supported; silu, gelu"),
        (JSON | {"model_type": "phi", "layer_norm_eps": 1e-5, "qk_layernorm": True},
         r"layer norm of queries and keys \('qk_layernorm'\) is not supported"),
        (GEMMA3 | {"use_bidirectional_attention": True}, "attention to later positions"),
        (GEMMA3 | {"layer_types": ["linear"] * 7}, "'layer_types' must be a list of sliding_att"),
        (GEMMA3 | {"layer_types": ["full_attention"]}, "1 'layer_types' for 7 layers"),
        (GEMMA3 | {"sliding_window": "x"}, "'sliding_window' must be a number, is 'x'"),
        (GEMMA3 | {"sliding_window": -4}, "every window must be positive"),
        (JSON | {"attention_bias": 1}, "'attention_bias' must be true or false, is 1"),
        (JSON | {"partial_rotary_factor": 2.0}, "16 rotated features in heads of 8"),
    ],
)  # fmt: skip
def test_unsupported_features_are_named(values, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        open_json(tmp_path, values)


def test_tensors_of_other_families_are_checked(tmp_path):
    metadata = {k.replace("llama", "qwen3"): v for k, v in METADATA.items()}
    metadata["general.architecture"] = "qwen3"
    norms = {f"blk.0.attn_{n}_norm.weight": (8,) for n in "qk"}
    assert config_from_gguf(open_model(tmp_path, metadata, norms)).qk_norm
    with pytest.raises(ValueError, match="no tensor 'blk.0.attn_q_norm.weight'"):
        config_from_gguf(open_model(tmp_path, metadata))
    with pytest.raises(ConfigError, match="a qwen3 model has no use for: blk.0.attn_x.weight"):
        config_from_gguf(open_model(tmp_path, metadata, norms | {"blk.0.attn_x.weight": (8,)}))
    fused = {"blk.0.attn_qkv.weight": (64, 32)} | norms
    parts = [f"blk.0.attn_{n}.weight" for n in "qkv"]
    config_from_gguf(open_model(tmp_path, metadata, fused, parts))
    with pytest.raises(ConfigError, match=r"'blk.0.attn_qkv.weight' has shape \(8, 32\), expected"):
        config_from_gguf(open_model(tmp_path, metadata, fused | {"blk.0.attn_qkv.weight": (8, 32)},
                                    parts))  # fmt: skip
