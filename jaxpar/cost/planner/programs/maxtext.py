"""A plan as a command of MaxText.

Source: AI-Hypercomputer/maxtext, commit e591f30c: src/maxtext/configs/base.yml and types.py
"""

from typing import Any

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.network import levels
from jaxpar.cost.planner.plan import Plan
from jaxpar.cost.planner.programs.command import Command, refuse
from jaxpar.layout import Layout

AXES = {"pp": "pipeline", "dp": "data", "fsdp": "fsdp", "ep": "expert", "cp": "context"}
ATTENDS = {"zigzag": "ring", "ring": "ring", "gather": "all_gather", "ulysses": "ulysses"}
RECOMPUTES = {
    "none": "minimal_with_context",
    "selective": "minimal",
    "alternate": "save_dot_except_mlp",
    "full": "full",
}
NOTE = "Add run_name=, base_output_directory=, data and steps=."


def command(plan: Plan, optimizer: str) -> Command:
    """The command that trains by the plan.

    Raises:
        ValueError: MaxText has no option for a part of it.
    """
    layout, model = plan.layout, plan.job.architecture
    refuse(
        "maxtext",
        {
            f"it has no {optimizer}": optimizer not in ("adamw", "sgd"),
            "over dp it shards the optimizer's state, and no gradients": layout.zero == 2,
            f"{model.name} has another attention than its decoder block": model.latent,
            f"{model.name} has other norms than the two of its llama2 block, or biases": (
                model.norm != "rms" or model.norms != 2 or model.biases != "none"
            ),
            "its experts are in all layers": model.experts and model.dense_layers,
            f"its {layout.pp * layout.chunks} stages have equally many layers, and {model.layers} "
            "cannot be divided so": model.layers % (layout.pp * layout.chunks),
        },
    )
    settings = _model(model) | _training(plan, optimizer) | _spread(plan, layout)
    words = ["python3", "-m", "maxtext.trainers.pre_train.train", "src/maxtext/configs/base.yml"]
    words += [f"{name}={_written(value)}" for name, value in settings.items() if value is not None]
    notes = [NOTE]
    if layout.remat != "full":
        notes.append(
            f"Of its policies, {RECOMPUTES[layout.remat]} is the nearest to remat {layout.remat}."
        )
    return Command(words, notes)


def _model(model: Architecture) -> dict[str, Any]:
    settings = {
        "base_num_decoder_layers": model.layers,
        "base_emb_dim": model.hidden,
        "base_num_query_heads": model.heads,
        "base_num_kv_heads": model.key_heads,
        "head_dim": model.d_head,
        "base_mlp_dim": model.d_ffn,
        "mlp_activations": None if model.gated else "['gelu']",
        "vocab_size": model.vocab,
        "logits_via_embedding": model.tied or None,
    }
    if experts := model.experts:
        settings |= {
            "decoder_block": "mixtral",
            "num_experts": experts.count,
            "num_experts_per_tok": experts.per_token,
            "base_mlp_dim": experts.ffn,
            "base_moe_mlp_dim": experts.ffn,
            "shared_experts": round(experts.shared / experts.ffn) or None,
        }
    return settings


def _training(plan: Plan, optimizer: str) -> dict[str, Any]:
    job, layout = plan.job, plan.layout
    steps = 1 if layout.pp > 1 else plan.microbatches
    piped = layout.pp > 1
    return {
        "hardware": None if job.cluster.torus else "gpu",
        "max_target_length": job.sequence,
        "per_device_batch_size": job.batch / (layout.devices * steps),
        "gradient_accumulation_steps": steps if steps > 1 else None,
        "num_pipeline_microbatches": plan.microbatches if piped else None,
        "num_layers_per_pipeline_stage": (
            job.architecture.layers // (layout.pp * layout.chunks) if piped else None
        ),
        "opt_type": None if optimizer == "adamw" else optimizer,
        "remat_policy": RECOMPUTES[layout.remat],
        "shard_optimizer_over_data": layout.zero == 1 or None,
        "optimizer_memory_host_offload": layout.offload != "none" or None,
        "parameter_memory_host_offload": layout.offload == "all" or None,
    }


def _spread(plan: Plan, layout: Layout) -> dict[str, Any]:
    """Each axis inside nodes (ici) and between them (dcn); what is not named has one device."""
    names = AXES | {"tp": "tensor_sequence" if layout.sequence_parallel else "tensor"}
    settings: dict[str, Any] = {}
    for axis, name in names.items():
        inside, between = levels(layout, axis, plan.job.cluster)
        settings[f"ici_{name}_parallelism"] = int(inside)
        settings[f"dcn_{name}_parallelism"] = int(between)
    # These two are -1, which means all that is left, unless they are given.
    asked = ("ici_fsdp_parallelism", "dcn_data_parallelism")
    settings = {name: n if n > 1 or name in asked else None for name, n in settings.items()}
    if layout.cp > 1:
        settings["context_parallel_strategy"] = ATTENDS[layout.context]
        settings["context_parallel_load_balance"] = layout.context != "ring"
    return settings


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
