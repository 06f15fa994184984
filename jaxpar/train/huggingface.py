"""Models of Hugging Face: their config.json as settings, and which tensors our parameters are.

Two families are known: that of Llama, with Mistral and Qwen2, and GPT-2. A key of config.json that
is not known here is refused, since it may change what a model computes.

Source: huggingface/transformers 5, src/transformers/models/{llama,mistral,qwen2,gpt2}/ and
modeling_rope_utils.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from jaxpar.collectives.leaves import STACKED
from jaxpar.cost.huggingface import load_config, read_config
from jaxpar.model import Settings
from jaxpar.nn import RopeScaling
from jaxpar.parallel.tensor import COLUMNS, ROWS
from jaxpar.train.saved import named, shapes_of
from jaxpar.train.tokenizer import MULTIPLE

CONFIG = "config.json"
LLAMA, GPT2 = "llama", "gpt2"
FAMILIES = {"llama": LLAMA, "mistral": LLAMA, "qwen2": LLAMA, "gpt2": GPT2}
UNSAID_WINDOWS = {"mistral": 4096}  # of types that have one where config.json has no key for it
EPSILONS = {LLAMA: ("rms_norm_eps", 1e-6), GPT2: ("layer_norm_epsilon", 1e-5)}
DROPOUTS = ("attention_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop")
# Keys that say how large a model is, or what `read_settings` asks for.
OF_SIZES = """
    model_type vocab_size hidden_size n_embd num_hidden_layers n_layer num_attention_heads n_head
    num_key_value_heads head_dim intermediate_size n_inner n_positions max_position_embeddings
    tie_word_embeddings attention_bias mlp_bias rms_norm_eps layer_norm_epsilon rope_theta
    rope_scaling rope_parameters layer_types sliding_window
"""
# Keys that say nothing about the logits.
NEUTRAL = """
    _attn_implementation_autoset _name_or_path _num_labels architectures bos_token_id eos_token_id
    pad_token_id chunk_size_feed_forward dtype finetuning_task gradient_checkpointing id2label
    initializer_range is_encoder_decoder is_llama_config label2id max_sequence_length
    max_window_layers n_ctx n_special num_labels output_attentions output_hidden_states output_past
    predict_special_tokens pretraining_tp problem_type reorder_and_upcast_attn return_dict
    summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    task_specific_params tokenizer_class torch_dtype torchscript transformers.js_config
    transformers_version unsloth_fixed unsloth_version use_cache
"""
# Keys of which our decoder has one value, or some with the same meaning.
ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1, None),
    "rope_interleaved": (False,),
    "scale_attn_weights": (True,),
    "scale_attn_by_inverse_layer_idx": (False,),
    "use_mrope": (False,),
    "use_sliding_window": (False,),
}
KNOWN = frozenset((*OF_SIZES.split(), *NEUTRAL.split(), *DROPOUTS, *ONLY))
# Our parameters and their tensors; a bias stands beside its matrix, or the gain of its norm.
TENSORS = {
    LLAMA: {
        "embedding": "model.embed_tokens.weight",
        "layers.attention_norm.scale": "model.layers.{}.input_layernorm.weight",
        "layers.attention.query": "model.layers.{}.self_attn.q_proj.weight",
        "layers.attention.key": "model.layers.{}.self_attn.k_proj.weight",
        "layers.attention.value": "model.layers.{}.self_attn.v_proj.weight",
        "layers.attention.output": "model.layers.{}.self_attn.o_proj.weight",
        "layers.mlp_norm.scale": "model.layers.{}.post_attention_layernorm.weight",
        "layers.mlp.gate": "model.layers.{}.mlp.gate_proj.weight",
        "layers.mlp.up": "model.layers.{}.mlp.up_proj.weight",
        "layers.mlp.down": "model.layers.{}.mlp.down_proj.weight",
        "final_norm.scale": "model.norm.weight",
        "head": "lm_head.weight",
    },
    GPT2: {
        "embedding": "transformer.wte.weight",
        "positions": "transformer.wpe.weight",
        "layers.attention_norm.scale": "transformer.h.{}.ln_1.weight",
        "layers.attention.query": "transformer.h.{}.attn.c_attn.weight",
        "layers.attention.key": "transformer.h.{}.attn.c_attn.weight",
        "layers.attention.value": "transformer.h.{}.attn.c_attn.weight",
        "layers.attention.output": "transformer.h.{}.attn.c_proj.weight",
        "layers.mlp_norm.scale": "transformer.h.{}.ln_2.weight",
        "layers.mlp.up": "transformer.h.{}.mlp.c_fc.weight",
        "layers.mlp.down": "transformer.h.{}.mlp.c_proj.weight",
        "final_norm.scale": "transformer.ln_f.weight",
        "head": "lm_head.weight",
    },
}
LARGEST = 1e38  # of a number
HEAD = "lm_head.weight"
# What the names of tensors begin with, unless a model was saved without its head.
BASES = {LLAMA: "model.", GPT2: "transformer."}
FUSED = ("query", "key", "value")  # of GPT-2, side by side in one tensor


class Read(NamedTuple):
    """What a config.json says.

    Attributes:
        family: `LLAMA` or `GPT2`.
        settings: the decoder.
        notes: what a user should know.
    """

    family: str
    settings: Settings
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Place:
    """Where a parameter is.

    Attributes:
        tensor: the name of its tensor, in which {} stands for the layer.
        turned: whether it is [out, in] there, and not [in, out].
        part: which of equal parts of the tensor's last dim it is.
        parts: how many there are.
    """

    tensor: str
    turned: bool = False
    part: int = 0
    parts: int = 1


class Part(NamedTuple):
    """What a tensor has of one of our parameters.

    Attributes:
        name: the parameter's.
        layer: the layer; None outside of the layers.
        place: where it is in the tensor.
        shape: the tensor's shape.
    """

    name: str
    layer: int | None
    place: Place
    shape: tuple[int, ...]


def place_of(family: str, name: str) -> Place:
    """Where a parameter is that our decoder has under this name, as in "layers.mlp.up_bias"."""
    is_bias = name.endswith(("_bias", ".bias"))
    of = name.removesuffix("_bias")
    of = f"{of.removesuffix('.bias')}.scale" if of.endswith(".bias") else of
    tensor = TENSORS[family][of]
    last = of.rpartition(".")[2]
    part, parts = (FUSED.index(last), 3) if family == GPT2 and last in FUSED else (0, 1)
    if is_bias:
        return Place(f"{tensor.removesuffix('weight')}bias", False, part, parts)
    turned = last == "head" or (family == LLAMA and last in (*COLUMNS, *ROWS))
    return Place(tensor, turned, part, parts)


def tensors_of(family: str, settings: Settings) -> dict[str, list[Part]]:
    """Every tensor of a decoder, by its name, and the parts that it consists of."""
    words = settings.vocabulary - settings.padding
    shapes = shapes_of(replace(settings, vocabulary=words, padding=0, document_end=None))
    found: dict[str, list[Part]] = {}
    for name, leaf in named(shapes).items():
        place = place_of(family, name)
        stacked = is_stacked(name)
        *rest, last = leaf.shape[stacked:]
        shape = (*rest, last * place.parts)
        shape = shape[::-1] if place.turned else shape
        for layer in range(settings.layers) if stacked else [None]:
            part = Part(name, layer, place, shape)
            found.setdefault(place.tensor.format(layer), []).append(part)
    return {name: sorted(parts, key=lambda one: one.place.part) for name, parts in found.items()}


def is_stacked(name: str) -> bool:
    """Whether a parameter of this name is that of all layers."""
    return name.partition(".")[0] == STACKED


def read_settings(folder: Path) -> Read:
    """The decoder that the config.json of a folder describes.

    The vocabulary is padded to a multiple of 128, so that tp divides it.

    Raises:
        ValueError: there is none, it is malformed, or it describes what our decoder is not.
    """
    file = folder / CONFIG
    values = load_config(file)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ValueError(
            f"{file}: model_type is {kind!r:.60}; weights are read of {', '.join(FAMILIES)}; use "
            "one of these"
        )
    _check_keys(file, values)
    model, family = read_config(folder), FAMILIES[kind]
    if model.d_head * model.heads != model.hidden:
        refuse(file, "head_dim", model.d_head, f"hidden / heads, {model.hidden / model.heads:g}")
    theta, scaling = _rotary(file, values)
    epsilon = _number(file, values, *EPSILONS[family])
    sequence = model.positions or _positions(file, values)
    try:
        settings = Settings(
            vocabulary=-(-model.vocab // MULTIPLE) * MULTIPLE,
            padding=-model.vocab % MULTIPLE,
            layers=model.layers,
            d_model=model.hidden,
            heads=model.heads,
            kv_heads=model.key_heads,
            d_ff=model.d_ffn,
            norm="layer" if family == GPT2 else "rms",
            positions="learned" if family == GPT2 else "rotary",
            mlp="gelu" if family == GPT2 else "swiglu",
            tied=model.tied,
            sequence=sequence,
            biases=model.biases,
            norm_epsilon=epsilon,
            rope_theta=theta,
            rope_scaling=scaling,
        )
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from None
    dropped = [key for key in DROPOUTS if values.get(key)]
    notes = [f"{file}: {', '.join(dropped)}: nothing is dropped here"] if dropped else []
    return Read(family, settings, tuple(notes))


def config_of(
    settings: Settings, *, dtype: str, begin: int | None, end: int | None
) -> tuple[str, dict[str, Any]]:
    """The family of a decoder, and its config.json.

    `begin` and `end` are the tokens with which a text begins and ends.

    Raises:
        ValueError: no family has such a decoder.
    """
    family = _family_of(settings)
    both = {
        "vocab_size": settings.vocabulary - settings.padding,
        "tie_word_embeddings": settings.tied,
        EPSILONS[family][0]: settings.norm_epsilon,
        "torch_dtype": dtype,
        "bos_token_id": begin,
        "eos_token_id": end,
    }
    if family == GPT2:
        return family, {
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_embd": settings.d_model,
            "n_layer": settings.layers,
            "n_head": settings.heads,
            "n_inner": settings.d_hidden,
            "n_positions": settings.sequence,
            "activation_function": "gelu_new",
            **dict.fromkeys(DROPOUTS[1:], 0.0),
            **both,
        }
    qwen = settings.biases == "qkv"
    kinds = ["Qwen2ForCausalLM"] if qwen else ["LlamaForCausalLM"]
    scaling = settings.rope_scaling
    biases = {
        "attention_bias": settings.biases != "none",
        "mlp_bias": settings.biases == "all",
        "head_dim": settings.d_head,
    }
    return family, {
        "architectures": kinds,
        "model_type": "qwen2" if qwen else "llama",
        "hidden_size": settings.d_model,
        "intermediate_size": settings.d_hidden,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.key_heads,
        "hidden_act": "silu",
        "max_position_embeddings": settings.sequence,
        "rope_theta": settings.rope_theta,
        "rope_scaling": scaling
        and {
            "rope_type": "llama3",
            "factor": scaling.factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": scaling.original,
        },
        **({"use_sliding_window": False} if qwen else biases),
        **both,
    }


def with_all_biases(family: str, settings: Settings) -> Settings:
    """The settings of the same decoder as its family has it: in GPT-2 every matrix has a bias."""
    return replace(settings, biases="all") if family == GPT2 else settings


def refuse(file: Path, key: str, value: Any, allowed: str) -> NoReturn:
    """Raises a ValueError about a value of config.json."""
    raise ValueError(
        f"{file}: {key} is {value!r:.80}; this decoder has {allowed}; use another model"
    )


def _family_of(settings: Settings) -> str:
    if settings.experts:
        raise ValueError(f"{settings.experts} experts: no family that is written here has any")
    if settings.mup_base:
        raise ValueError(
            f"muP from width {settings.mup_base}: its scales of logits and layers have no place in "
            "a config.json"
        )
    parts = settings.norm, settings.positions, settings.mlp
    if parts == ("rms", "rotary", "swiglu"):
        return LLAMA
    if parts == ("layer", "learned", "gelu") and settings.key_heads == settings.heads:
        return GPT2
    raise ValueError(
        f"norm {parts[0]}, positions {parts[1]}, mlp {parts[2]} and {settings.key_heads} kv heads "
        f"of {settings.heads}: Llama has rms, rotary, swiglu, and GPT-2 has layer, learned, gelu "
        "and as many kv heads as heads"
    )


def _check_keys(file: Path, values: Mapping[str, Any]) -> None:
    for key, allowed in ONLY.items():
        if values.get(key, allowed[0]) not in allowed:
            refuse(file, key, values[key], " or ".join(map(repr, allowed)))
    kinds = values.get("layer_types") or []
    if not isinstance(kinds, list) or set(map(str, kinds)) - {"full_attention"}:
        refuse(file, "layer_types", kinds, "'full_attention' in every layer")
    kind = values["model_type"]
    window = values.get("sliding_window", UNSAID_WINDOWS.get(kind))
    # Here `use_sliding_window` is false or missing: for Qwen2 both turn the window off, and Mistral
    # knows no such key.
    off = kind == "qwen2" or (kind != "mistral" and "use_sliding_window" in values)
    if window is not None and not off:
        refuse(file, "sliding_window", window, "attention to all positions, null")
    for key in sorted(values.keys() - KNOWN):
        raise ValueError(
            f"{file}: key {key}, {values[key]!r:.60}, is not known here, and may change what the "
            "model computes; if it does not, remove it from a copy of the file"
        )


def _rotary(file: Path, values: Mapping[str, Any]) -> tuple[float, RopeScaling | None]:
    """The base of rotary positions and their scaling, by the keys of old or new versions.

    Where a file has both, transformers takes those of old ones.
    """
    given = values.get("rope_scaling") or values.get("rope_parameters") or {}
    if not isinstance(given, dict):
        refuse(file, "rope_scaling", given, "null or an object")
    theta = _number(file, {**values, **given}, "rope_theta", 10_000.0)
    kind = given.get("rope_type", given.get("type", "default"))
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    scaled = kind == "llama3"
    if kind not in ("default", "llama3"):
        refuse(file, "rope_type", kind, "'default' or 'llama3'")
    known = {"rope_theta", "rope_type", "type", *(names if scaled else ())}
    _only_known(file, given, known, kind)
    if not scaled:
        return theta, None
    factor, low, high, original = (_number(file, given, name, None) for name in names)
    if not low < high:
        refuse(file, "high_freq_factor", high, f"one above low_freq_factor, {low:g}")
    if original >= 2**31:  # it is multiplied as int32
        refuse(file, names[-1], original, "fewer than 2^31")
    return theta, RopeScaling(factor, low, high, int(original))


def _only_known(file: Path, given: Mapping[str, Any], known: Iterable[str], kind: str) -> None:
    for key in sorted(given.keys() - set(known)):
        raise ValueError(
            f"{file}: {key} is {given[key]!r:.60} beside rope_type {kind!r}; it is not known "
            "here, and may change what the model computes; use another model"
        )


def _positions(file: Path, values: Mapping[str, Any]) -> int:
    """The longest sequence that a model with rotary positions was made for."""
    return int(_number(file, values, "max_position_embeddings", None))


def _number(file: Path, values: Mapping[str, Any], key: str, default: float | None) -> float:
    """A number above 0 that float32 has.

    Raises:
        ValueError: it is something else, or missing without a default.
    """
    value = values.get(key, default)
    if type(value) not in (int, float) or not 0 < value <= LARGEST:
        raise ValueError(
            f"{file}: {key} is {value!r:.60}; it must be a number above 0 and at most "
            f"{LARGEST:g}; give one"
        )
    return float(value)
