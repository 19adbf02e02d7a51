"""Reading of the rotary embedding's parameters from a model file."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from relaxlab.models.config import ConfigError, Rope
from relaxlab.models.keys import Keys

LOCAL, GLOBAL = "sliding_attention", "full_attention"
"""Names in ``config.json`` of the layers with and without a window."""

ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Tensors of a GGUF file with divisors of frequencies."""


def read_rope(
    keys: Keys,
    head_dim: int,
    *,
    interleaved: bool = False,
    theta: float = 10000.0,
    partial: float = 1.0,
) -> Rope:
    """Return the rotary embedding of all layers, or of those without a window.

    `theta` and `partial`, the rotated share of a head's features, are defaults for files without
    them. Raises ConfigError for a kind of scaling that is not supported.
    """
    found = _parameters(keys, GLOBAL)
    theta = found.number("rope_theta", keys.number("rope_theta", theta))
    partial = found.number("partial_rotary_factor", keys.number("partial_rotary_factor", partial))
    dims = keys.integer("rotary_dim", int(head_dim * partial))
    return _scaled(Rope(theta, dims, interleaved), found, keys)


def read_local_rope(keys: Keys, head_dim: int, *, theta: float) -> Rope:
    """The rotary embedding of the layers with a window; arguments as for `read_rope`."""
    theta = keys.number("rope_local_base_freq", theta)
    if keys.gguf is not None:
        return Rope(theta, head_dim)
    found = _parameters(keys, LOCAL)
    return _scaled(Rope(found.number("rope_theta", theta), head_dim), found, keys)


def _parameters(keys: Keys, layers: str) -> Keys:
    """Return the object with the parameters of those layers' rope: one of its own in
    ``config.json``, `rope_parameters` or, as older files call it, `rope_scaling`."""
    if keys.gguf is not None:
        return keys
    name = "rope_parameters" if "rope_parameters" in keys.values else "rope_scaling"
    found = keys.child(name)
    if LOCAL in found.values or GLOBAL in found.values:
        return found.child(layers)
    # Where there is one object only, it is about the layers without a window.
    return found if layers == GLOBAL else replace(found, values={})


def _scaled(rope: Rope, found: Keys, keys: Keys) -> Rope:
    pairs = rope.dims // 2
    tensors = {} if keys.gguf is None else keys.gguf.tensors
    # Llama 3.1 and later: the converter to GGUF has evaluated the scaling, and stores divisors.
    if "rope_freqs.weight" in tensors:
        return replace(rope, divisors=keys.numbers("", "rope_freqs.weight"))
    kind = found.text("rope_type", found.text("type", "default"))
    if "rope_factors_long.weight" in tensors:
        kind = "longrope"
    match kind:
        case "default" | "none":
            return rope
        case "linear":
            return replace(rope, divisors=(found.number("factor"),) * pairs)
        case "llama3":
            return replace(rope, divisors=_llama3_divisors(rope, found))
        case "longrope" | "su":
            return _long_rope(rope, found, keys)
        case "yarn":
            return _yarn(rope, found, keys)
        case _:
            raise ConfigError(
                f"{found.where}: rope scaling {kind!r} is not supported; "
                "'linear', 'llama3', 'longrope' and 'yarn' are"
            )


def _llama3_divisors(rope: Rope, found: Keys) -> tuple[float, ...]:
    """Llama 3.1's rule: frequencies that make many turns over the original context are kept, those
    that make few are divided by the factor, and in between the two are blended."""
    factor, low = found.number("factor"), found.number("low_freq_factor")
    span = found.number("high_freq_factor") - low
    if factor <= 0 or span <= 0:
        raise ConfigError(f"{found.where}: factor and the span of freq_factors must be positive")
    context = found.integer("original_max_position_embeddings")
    turns = context * rope.frequencies() / (2 * np.pi)
    keep = np.clip((turns - low) / span, 0, 1)
    return tuple((1 / (keep + (1 - keep) / factor)).tolist())


def _long_rope(rope: Rope, found: Keys, keys: Keys) -> Rope:
    """LongRoPE, of Phi-3: divisors of their own for each pair, others for contexts longer than the
    original one, and cosines and sines scaled up."""
    longest = keys.integer("max_position_embeddings")
    original = keys.integer(
        "original_max_position_embeddings",
        found.integer("original_max_position_embeddings", longest),
    )
    stretch = found.number("factor", longest / original)
    scale = 1.0
    if keys.gguf is None and stretch > 1:  # the converter to GGUF writes down the result
        scale = math.sqrt(1 + math.log(stretch) / math.log(original))
    return replace(
        rope,
        divisors=found.numbers("short_factor", "rope_factors_short.weight"),
        long_divisors=found.numbers("long_factor", "rope_factors_long.weight"),
        original_context=original,
        scale=found.number("attention_factor", scale),
    )


def _yarn(rope: Rope, found: Keys, keys: Keys) -> Rope:
    """YaRN (Peng et al., 2023), of Qwen's long contexts: pairs up to the one that makes `beta_fast`
    turns over the original context are kept, those from `beta_slow` turns on are divided by the
    factor, and in between the two are blended. Cosines and sines are scaled up.

    ConfigError for values that make no sense, and for a GGUF file that weakens the blending.
    """
    longest = keys.integer("max_position_embeddings")
    original = found.integer("original_max_position_embeddings", longest)
    fast, slow = found.number("beta_fast", 32.0), found.number("beta_slow", 1.0)
    if min(original, fast, slow) <= 0 or rope.theta <= 1:
        raise ConfigError(f"{found.where}: YaRN needs a positive context, betas, and a base over 1")
    factor = found.number("factor", longest / original)
    if not 1 <= factor < math.inf or found.number("extrapolation_factor", 1.0) != 1:
        raise ConfigError(f"{found.where}: YaRN needs a factor of at least 1, and to extrapolate")

    def pair_of(turns: float) -> float:
        """Return the number of the pair, with a fraction, that makes `turns` turns over the
        original context."""
        wavelengths = math.log(original / (turns * 2 * math.pi)) / math.log(rope.theta)
        return rope.dims / 2 * wavelengths

    first, last = pair_of(fast), pair_of(slow)
    if found.flag("truncate", default=True) or keys.gguf is not None:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, rope.dims - 1)
    # Both published implementations let a ramp between equal ends rise over a thousandth of a pair.
    ramp = np.clip((np.arange(rope.dims // 2) - first) / max(last - first, 0.001), 0, 1)
    return replace(
        rope,
        divisors=tuple((1 / (1 - ramp + ramp / factor)).tolist()),
        scale=_yarn_scale(factor, found),
        reach=int(factor * original),
    )


def _yarn_scale(factor: float, found: Keys) -> float:
    """Return the factor of cosines and sines, by whose square scores grow."""

    def grown(by: float) -> float:
        return 1 + 0.1 * by * math.log(factor)

    given = found.optional("attention_factor")
    if found.gguf is not None:  # llama.cpp applies it beside the usual one
        return grown(1.0) * (1.0 if given is None else given)
    if given is not None:
        return given
    scale, over = found.optional("mscale"), found.optional("mscale_all_dim")
    return grown(scale) / grown(over) if scale and over else grown(1.0)
