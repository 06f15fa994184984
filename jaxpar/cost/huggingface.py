"""Architectures from the config.json of Hugging Face.

Keys, and the defaults of missing ones, are those of transformers' configuration classes. But a size
that every real file gives must be there, even if the class has a default for it.

Source: huggingface/transformers 4.57.3, src/transformers/models/*/configuration_*.py and
modeling_*.py
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from jaxpar.cost.architecture import Architecture, Experts, Latent

_LARGEST_BYTES = 1_000_000  # of a config.json; real ones have a few thousand


def read_config(path: str | Path) -> Architecture:
    """The decoder that a config.json describes; `path` is the file, or the folder that has it.

    It is named after the folder, or after the file if that has another name. A layer that predicts
    a second token ahead does not count.

    Raises:
        ValueError: there is no such file, it is no JSON, its type is unknown, a key is missing, or
            a value is not what it must be.
    """
    path = Path(path)
    path = path / "config.json" if os.path.isdir(path) else path
    config = _Config(path, load_config(path))
    kind = config.values.get("model_type")
    if not isinstance(kind, str) or kind not in _READERS:
        raise ValueError(
            f"{path}: model_type is {kind!r:.60}; use a model of one of {', '.join(_READERS)}, or "
            "give its sizes"
        )
    try:
        return _READERS[kind](config)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def load_config(file: Path) -> dict[str, Any]:
    """The keys and values of a config.json.

    Raises:
        ValueError: it cannot be read, or is no JSON object.
    """
    try:
        with file.open("rb") as opened:
            text = opened.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{file}: cannot be read: {error.strerror}; give a config.json") from None
    if len(text) > _LARGEST_BYTES:
        raise ValueError(f"{file}: more than {_LARGEST_BYTES:,} bytes; no config.json is as large")
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: not JSON: {error}; give a config.json") from None
    if not isinstance(values, dict):
        raise ValueError(f"{file}: JSON, but not an object of keys and values; give a config.json")
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


@dataclass(frozen=True)
class _Config:
    path: Path
    values: Mapping[str, Any]

    def whole(self, *keys: str, default: int | None = None) -> int:
        """The whole number of the first of `keys` that is there."""
        for key in keys:
            if key in self.values:
                return self._of(int, key)
        if default is None:
            raise ValueError(f"key {' or '.join(keys)} is missing; give one")
        return default

    def maybe(self, key: str, default: int | None = None) -> int | None:
        """A whole number like that of `whole`, or None where the file has null."""
        if key in self.values and self.values[key] is None:
            return None
        return self._of(int, key) if key in self.values else default

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        return self._of(bool, key) if key in self.values else default

    def dropout(self, key: str, default: float) -> bool:
        """Whether some activations are dropped in training."""
        rate = self.values.get(key, default)
        if type(rate) not in (int, float) or not 0 <= rate < 1:
            raise ValueError(f"{key} is {rate!r:.60}; it must be from 0 to below 1")
        return rate > 0

    def expect(self, key: str, value: Any, why: str) -> None:
        """Refuses another value than this one, which an `Architecture` could not express."""
        if self.values.get(key, value) != value:
            raise ValueError(f"{key} is {self.values[key]!r:.60}; {why} is not known")

    def decoder(self, *, tied: bool, **fields: Any) -> Architecture:
        """An architecture from the keys that all types of models have, and from `fields`."""
        path = self.path.absolute()
        return Architecture(
            path.parent.name if path.name == "config.json" else path.stem,
            layers=self.whole("num_hidden_layers", "n_layer"),
            hidden=self.whole("hidden_size", "n_embed", "n_embd"),
            heads=self.whole("num_attention_heads", "n_head"),
            vocab=self.whole("vocab_size"),
            tied=self.flag("tie_word_embeddings", tied),
            **fields,
        )

    def gated(
        self,
        kv_heads: int | None = None,
        head_size: int | None = None,
        *,
        tied: bool = False,
        **fields: Any,
    ) -> Architecture:
        """An architecture like Llama's; `kv_heads` and `head_size` replace missing keys."""
        bias = self.flag("attention_bias", False)
        sizes = {
            "kv_heads": self.maybe("num_key_value_heads", kv_heads),
            "head_size": self.maybe("head_dim", head_size),
            "ffn": self.whole("intermediate_size"),
            "biases": "attention" if bias else "none",
        }
        return self.decoder(tied=tied, gated=True, **(sizes | fields))

    def _of(self, kind: type, key: str) -> Any:
        value = self.values[key]
        if type(value) is kind:
            return value
        wanted = {int: "a whole number", bool: "true or false"}[kind]
        raise ValueError(f"{key} is {value!r:.60}; it must be {wanted}")


def _llama(config: _Config) -> Architecture:
    if not config.flag("mlp_bias", False):
        return config.gated()
    if not config.flag("attention_bias", False):
        config.expect("mlp_bias", False, "a bias in the MLP alone")
    return config.gated(biases="all")


def _mixtral(config: _Config) -> Architecture:
    experts = Experts(
        config.whole("num_local_experts", default=8),
        config.whole("num_experts_per_tok", default=2),
        config.whole("intermediate_size"),
    )
    return config.gated(kv_heads=8, experts=experts)


def _qwen2_moe(config: _Config) -> Architecture:
    experts = Experts(
        config.whole("num_experts", default=60),
        config.whole("num_experts_per_tok", default=4),
        config.whole("moe_intermediate_size", default=1408),
        shared=config.whole("shared_expert_intermediate_size", default=5632),
        shared_gate=True,
        dense_layers=_qwen_dense_layers(config),
    )
    biases = "qkv" if config.flag("qkv_bias", True) else "none"
    return config.gated(kv_heads=16, biases=biases, experts=experts)


def _qwen3_moe(config: _Config) -> Architecture:
    experts = Experts(
        config.whole("num_experts", default=128),
        config.whole("num_experts_per_tok", default=8),
        config.whole("moe_intermediate_size", default=768),
        dense_layers=_qwen_dense_layers(config),
    )
    return config.gated(kv_heads=4, query_key_norm=True, experts=experts)


def _qwen_dense_layers(config: _Config) -> int:
    """How many layers have no experts; an architecture takes the first ones for them."""
    layers, step = config.whole("num_hidden_layers"), config.whole("decoder_sparse_step", default=1)
    listed = config.values.get("mlp_only_layers") or []
    if step < 1 or not isinstance(listed, list) or not all(type(i) is int for i in listed):
        raise ValueError(
            f"decoder_sparse_step is {step}, mlp_only_layers {listed!r:.60}; the "
            "first must be 1 or more, the second a list of whole numbers"
        )
    without = {i for i in listed if 0 <= i < layers and (i + 1) % step == 0}
    return layers - layers // step + len(without)


def _gpt2(config: _Config) -> Architecture:
    return config.decoder(
        tied=True,
        positions=config.whole("n_positions", default=1024),
        ffn=config.maybe("n_inner"),
        norm="layer",
        biases="all",
        dropout=config.dropout("resid_pdrop", 0.1),
    )


def _bloom(config: _Config) -> Architecture:
    dropout = config.dropout("hidden_dropout", 0)
    return config.decoder(
        tied=True, norm="layer", biases="all", embedding_norm=True, dropout=dropout
    )


def _opt(config: _Config) -> Architecture:
    config.expect("do_layer_norm_before", True, "a norm after the sum")
    config.expect("_remove_final_layer_norm", False, "a model without a final norm")
    if config.values.get("word_embed_proj_dim") is not None:
        hidden = config.whole("hidden_size")
        config.expect("word_embed_proj_dim", hidden, "an embedding of another size than hidden")
    config.expect("layer_norm_elementwise_affine", True, "a norm without parameters")
    return config.decoder(
        tied=True,
        positions=config.whole("max_position_embeddings") + 2,  # two rows belong to padding
        ffn=config.whole("ffn_dim"),
        norm="layer",
        biases="all" if config.flag("enable_bias", True) else "none",
        dropout=config.dropout("dropout", 0.1),
    )


def _gpt_neox(config: _Config) -> Architecture:
    config.expect("attention_bias", True, "a bias in the MLP alone")
    ffn = config.whole("intermediate_size")
    return config.decoder(tied=False, ffn=ffn, norm="layer", biases="all")


def _falcon(config: _Config) -> Architecture:
    new = config.flag("new_decoder_architecture", False)
    parallel, shared = config.flag("parallel_attn", True), config.flag("multi_query", True)
    norms = config.maybe("num_ln_in_parallel_attn") or (2 if new else 1)
    return config.decoder(
        tied=True,
        kv_heads=config.maybe("num_kv_heads") if new else 1 if shared else None,
        ffn=config.maybe("ffn_hidden_size"),
        norm="layer",
        norms=norms if parallel else 2,
        biases="all" if config.flag("bias", False) else "none",
    )


def _deepseek(config: _Config) -> Architecture:
    config.expect("attention_bias", False, "a bias in latent attention")
    config.expect("mlp_bias", False, "a bias in the MLP alone")
    config.expect("moe_layer_freq", 1, "an MLP between layers of experts")
    routed, ffn = config.maybe("n_routed_experts"), config.whole("moe_intermediate_size")
    own = "greedy" if config.values["model_type"] == "deepseek_v2" else "noaux_tc"
    experts = routed and Experts(
        routed,
        config.whole("num_experts_per_tok"),
        ffn,
        shared=(config.maybe("n_shared_experts") or 0) * ffn,
        dense_layers=config.whole("first_k_dense_replace", default=0),
        router_bias=config.values.get("topk_method", own) == "noaux_tc",
    )
    latent = Latent(
        config.maybe("q_lora_rank") or 0,
        config.whole("kv_lora_rank"),
        config.whole("qk_rope_head_dim"),
        config.whole("v_head_dim"),
    )
    return config.decoder(
        tied=False,
        head_size=config.whole("qk_nope_head_dim"),
        ffn=config.whole("intermediate_size"),
        gated=True,
        experts=experts or None,
        latent=latent,
    )


_READERS: Mapping[str, Callable[[_Config], Architecture]] = {
    "bloom": _bloom,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gemma": lambda config: config.gated(16, 256, tied=True),
    "gemma2": lambda config: config.gated(4, 256, tied=True, norms=4),
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "kimi_k2": _deepseek,
    "llama": _llama,
    "mistral": lambda config: config.gated(8),
    "mixtral": _mixtral,
    "opt": _opt,
    "phi3": lambda config: config.gated(),
    "qwen2": lambda config: config.gated(32, biases="qkv"),
    "qwen2_moe": _qwen2_moe,
    "qwen3": lambda config: config.gated(32, 128, query_key_norm=True),
    "qwen3_moe": _qwen3_moe,
}
