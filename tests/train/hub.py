"""Small random models in the form of Hugging Face, and what they compute, in numpy and float64.

Names, shapes and formulas are those of the papers and of transformers, and nothing here is ours.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

Tensors = dict[str, np.ndarray]

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "model_type": "llama",
    "num_attention_heads": 4,
    "num_hidden_layers": 4,
    "num_key_value_heads": 2,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-5,
    "rope_scaling": None,
    "rope_theta": 500.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "transformers_version": "4.57.3",
    "use_cache": True,
    "vocab_size": 97,
}
SCALING = {
    "factor": 4.0,
    "low_freq_factor": 0.5,
    "high_freq_factor": 2.0,
    "original_max_position_embeddings": 16,
    "rope_type": "llama3",
}
GPT2: dict[str, Any] = {
    "activation_function": "gelu_new",
    "architectures": ["GPT2LMHeadModel"],
    "attn_pdrop": 0.1,
    "bos_token_id": 96,
    "embd_pdrop": 0.1,
    "eos_token_id": 96,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-3,
    "model_type": "gpt2",
    "n_ctx": 32,
    "n_embd": 16,
    "n_head": 4,
    "n_layer": 4,
    "n_positions": 32,
    "resid_pdrop": 0.1,
    "summary_activation": None,
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    "vocab_size": 97,
}
QWEN2 = {
    **{key: value for key, value in LLAMA.items() if key != "attention_bias"},
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "max_window_layers": 2,
    "sliding_window": 32,
    "use_sliding_window": False,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama 3.1": LLAMA | {"rope_scaling": SCALING, "tie_word_embeddings": True},
    "llama with biases": LLAMA | {"attention_bias": True, "mlp_bias": True},
    "llama by transformers 5": {
        **{key: value for key, value in LLAMA.items() if not key.startswith("rope")},
        "rope_parameters": {"rope_theta": 300.0, "rope_type": "default"},
        "dtype": "float32",
        "attention_bias": True,
    },
    "mistral": LLAMA | {"model_type": "mistral", "sliding_window": None},
    "qwen2": QWEN2,
    "gpt2": GPT2,
}


def random_tensors(config: Mapping[str, Any], seed: int = 0) -> Tensors:
    """Random tensors of all names that a model with this config.json has."""
    random = np.random.default_rng(seed)
    shapes = _gpt2_shapes(config) if config["model_type"] == "gpt2" else _llama_shapes(config)
    return {name: random.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def write_folder(folder: Path, config: Mapping[str, Any], tensors: Tensors, files: int = 1) -> Path:
    """Writes config.json and the tensors, in one file or in several with an index."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    if files == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    place = {}
    for number in range(files):
        file = f"model-{number + 1:05}-of-{files:05}.safetensors"
        names = list(tensors)[number::files]
        save_file({name: tensors[name] for name in names}, folder / file)
        place |= dict.fromkeys(names, file)
    index = {"metadata": {}, "weight_map": place}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def logits(config: Mapping[str, Any], tensors: Tensors, tokens: np.ndarray) -> np.ndarray:
    """The logits [t, v] of one sequence."""
    tensors = {name: tensor.astype(np.float64) for name, tensor in tensors.items()}
    family = _gpt2_logits if config["model_type"] == "gpt2" else _llama_logits
    return family(config, tensors, tokens)


def _llama_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d, f, v = (config[key] for key in ("hidden_size", "intermediate_size", "vocab_size"))
    kv = config["num_key_value_heads"] * d // config["num_attention_heads"]
    qkv = config["model_type"] == "qwen2" or config.get("attention_bias")
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (v, d)}
    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        matrices = {
            "self_attn.q_proj": (d, d, qkv),
            "self_attn.k_proj": (kv, d, qkv),
            "self_attn.v_proj": (kv, d, qkv),
            "self_attn.o_proj": (d, d, config.get("attention_bias")),
            "mlp.gate_proj": (f, d, config.get("mlp_bias")),
            "mlp.up_proj": (f, d, config.get("mlp_bias")),
            "mlp.down_proj": (d, f, config.get("mlp_bias")),
        }
        for name, (rows, columns, biased) in matrices.items():
            shapes[f"{base}.{name}.weight"] = rows, columns
            shapes |= {f"{base}.{name}.bias": (rows,)} if biased else {}
        shapes |= {f"{base}.input_layernorm.weight": (d,)}
        shapes |= {f"{base}.post_attention_layernorm.weight": (d,)}
    shapes["model.norm.weight"] = (d,)
    return shapes | ({} if config["tie_word_embeddings"] else {"lm_head.weight": (v, d)})


def _gpt2_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d, v = config["n_embd"], config["vocab_size"]
    shapes = {"wte.weight": (v, d), "wpe.weight": (config["n_positions"], d)}
    for layer in range(config["n_layer"]):
        for name, inputs, outputs in (
            ("attn.c_attn", d, 3 * d),
            ("attn.c_proj", d, d),
            ("mlp.c_fc", d, 4 * d),
            ("mlp.c_proj", 4 * d, d),
        ):
            shapes[f"h.{layer}.{name}.weight"] = inputs, outputs
            shapes[f"h.{layer}.{name}.bias"] = (outputs,)
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{layer}.{name}.{kind}": (d,) for kind in ("weight", "bias")}
    return shapes | {"ln_f.weight": (d,), "ln_f.bias": (d,)}


def _llama_logits(config: Mapping[str, Any], tensors: Tensors, tokens: np.ndarray) -> np.ndarray:
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    x = tensors["model.embed_tokens.weight"][tokens]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        mean = (x**2).mean(-1, keepdims=True)
        return x / np.sqrt(mean + config["rms_norm_eps"]) * tensors[f"{name}.weight"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T + tensors.get(f"{name}.bias", 0)

    for layer in range(config["num_hidden_layers"]):
        base = f"model.layers.{layer}"
        y = norm(x, f"{base}.input_layernorm")
        q, k, v = (linear(y, f"{base}.self_attn.{one}_proj") for one in "qkv")
        q, k = (_turned(config, one, d_head=x.shape[1] // heads) for one in (q, k))
        x = x + linear(_attended(q, k, v, heads, groups), f"{base}.self_attn.o_proj")
        y = norm(x, f"{base}.post_attention_layernorm")
        gate = linear(y, f"{base}.mlp.gate_proj")
        hidden = gate / (1 + np.exp(-gate)) * linear(y, f"{base}.mlp.up_proj")
        x = x + linear(hidden, f"{base}.mlp.down_proj")
    head = "model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"
    return norm(x, "model.norm") @ tensors[head].T


def _turned(config: Mapping[str, Any], x: np.ndarray, d_head: int) -> np.ndarray:
    """Each pair (i, i + d_head/2) of each head as a complex number, turned by its position."""
    given = config.get("rope_parameters") or config
    frequencies = given["rope_theta"] ** (-np.arange(0, d_head, 2) / d_head)
    scaling = config.get("rope_scaling")
    if scaling:
        original = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        for i, frequency in enumerate(frequencies):
            turns = original / (2 * np.pi / frequency)
            smooth = (turns - low) / (high - low)
            slow = frequency / scaling["factor"]
            mixed = (1 - smooth) * slow + smooth * frequency
            frequencies[i] = frequency if turns > high else slow if turns < low else mixed
    by_head = x.reshape(len(x), -1, 2, d_head // 2)
    turns = np.exp(1j * np.arange(len(x))[:, None] * frequencies)[:, None]
    turned = (by_head[:, :, 0] + 1j * by_head[:, :, 1]) * turns
    return np.stack([turned.real, turned.imag], axis=2).reshape(x.shape)


def _gpt2_logits(config: Mapping[str, Any], tensors: Tensors, tokens: np.ndarray) -> np.ndarray:
    heads = config["n_head"]
    x = tensors["wte.weight"][tokens] + tensors["wpe.weight"][: len(tokens)]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt(x.var(-1, keepdims=True) + config["layer_norm_epsilon"])
        return unit * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    for layer in range(config["n_layer"]):
        q, k, v = np.split(linear(norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn"), 3, axis=1)
        x = x + linear(_attended(q, k, v, heads, heads), f"h.{layer}.attn.c_proj")
        up = linear(norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc")
        hidden = up / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = x + linear(hidden, f"h.{layer}.mlp.c_proj")
    return norm(x, "ln_f") @ tensors["wte.weight"].T


def _attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, heads: int, groups: int) -> np.ndarray:
    """Causal attention of [t, d], head by head; consecutive heads have the same keys."""
    t, d = q.shape
    h = d // heads
    results = []
    for head in range(heads):
        own = slice(head * h, (head + 1) * h)
        group = head // (heads // groups)
        shared = slice(group * h, (group + 1) * h)
        scores = q[:, own] @ k[:, shared].T / np.sqrt(h)
        scores = np.where(np.tril(np.ones((t, t), bool)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        results.append(weights / weights.sum(-1, keepdims=True) @ v[:, shared])
    return np.concatenate(results, axis=1)
