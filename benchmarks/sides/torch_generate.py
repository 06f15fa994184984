"""`generate` of the library transformers, for a Llama with our parameters."""

import sys

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from transformers import LlamaConfig, LlamaForCausalLM  # pyright: ignore[reportMissingImports]

from benchmarks.sides.our_decode import SETTINGS, prompts
from benchmarks.sides.our_requests import OUTPUT, PROMPT
from benchmarks.sides.race import serve
from benchmarks.sides.torch_step import first_parameters

PARTS = {
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "output": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
ENDS = {
    "embedding.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}


def llama() -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=SETTINGS.vocabulary,
        hidden_size=SETTINGS.d_model,
        intermediate_size=SETTINGS.d_hidden,
        num_hidden_layers=SETTINGS.layers,
        num_attention_heads=SETTINGS.heads,
        rms_norm_eps=1e-6,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.load_state_dict(renamed(first_parameters(SETTINGS)))
    return model.eval()


def renamed(parameters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our parameters under the names of a Llama, with queries, keys and values apart."""
    found = {theirs: parameters.pop(ours) for ours, theirs in ENDS.items()}
    for name, parameter in parameters.items():
        _, layer, part, _ = name.split(".")
        prefix = f"model.layers.{layer}."
        if part == "query_key_value":  # of each head one after the other
            by_heads = parameter.unflatten(0, (SETTINGS.heads, 3, SETTINGS.d_head))
            for one, rows in zip("qkv", by_heads.unbind(1), strict=True):
                found[f"{prefix}self_attn.{one}_proj.weight"] = rows.flatten(0, 1)
        else:
            found[f"{prefix}{PARTS[part]}.weight"] = parameter
    return found


def generate(b: int) -> None:
    """Each step answers requests of one length; what it tells for a loss is the sum of tokens."""
    model, tokens = llama(), torch.from_numpy(prompts(b, PROMPT))
    mask = torch.ones_like(tokens)

    def step() -> float:
        with torch.inference_mode():
            written = model.generate(
                tokens, attention_mask=mask, max_new_tokens=OUTPUT, do_sample=False
            )
        return float(written[:, PROMPT:].sum())

    serve(step)


if __name__ == "__main__":
    generate(int(sys.argv[1]))
