"""A plan as a command of torchtitan, for the models of which it has a config.

Source: pytorch/torchtitan, commit b5bcd76c (2026-08-21): torchtitan/config/configs.py and
torchtitan/models/llama3/config_registry.py
"""

from jaxpar.cost.planner.plan import Plan
from jaxpar.cost.planner.programs.command import (
    Command,
    dashed,
    degree,
    refuse,
    start_note,
    torchrun,
)

CONFIGS = {"llama3-8b": "llama3_8b", "llama3-70b": "llama3_70b", "llama3-405b": "llama3_405b"}
# Attention is one kernel there, which keeps no scores: "selective" has nothing to recompute.
RECOMPUTES = {
    "none": "None",
    "selective": "None",
    "alternate": "SelectiveAC.Config()",
    "full": "FullAC.Config()",
}


def command(plan: Plan, optimizer: str) -> Command:
    """The command that trains by the plan.

    Raises:
        ValueError: torchtitan has no config of the model, or no option for a part of the plan.
    """
    job, layout, model = plan.job, plan.layout, plan.job.architecture
    known = ", ".join(CONFIGS)
    refuse(
        "torchtitan",
        {
            f"it has no config of {model.name}, but of {known}": model.name not in CONFIGS,
            f"it has no {optimizer} in these configs": optimizer != "adamw",
            "it shards everything, as stage 3 does, or nothing": layout.zero in (1, 2),
            "over ep it splits experts": layout.ep > 1,
            "it reduces gradients in float32, which are --gradient-bytes 4": (
                job.gradient_bytes != 4
            ),
            "it offloads all or nothing": layout.offload == "optimizer",
        },
    )
    chunked = layout.chunks > 1
    # What is not a replica shards states; so does cp, by itself.
    replicas = layout.dp if layout.fsdp > 1 else 1
    if layout.zero == 0:
        replicas = layout.batch_parts
    tokens = layout.microbatch * job.sequence
    options = {
        "training.num_tokens_per_microbatch_per_dp_rank": tokens,
        "training.num_tokens_per_train_step": job.batch * job.sequence,
        "training.max_context_length": job.sequence,
        "training.enable_cpu_offload": layout.offload == "all",
        "parallelism.data_parallel_replicate_degree": replicas,
        "parallelism.data_parallel_shard_degree": layout.batch_parts // replicas,
        "parallelism.tensor_parallel_degree": degree(layout.tp),
        "parallelism.context_parallel_degree": degree(layout.cp),
        "parallelism.pipeline_parallel_degree": degree(layout.pp),
        "parallelism.pipeline_parallel_schedule": "Interleaved1F1B" if chunked else None,
        "parallelism.pipeline_parallel_layers_per_stage": (
            -(-model.layers // (layout.pp * layout.chunks)) if layout.pp > 1 else None
        ),
        "parallelism.num_pp_microbatches": plan.microbatches if layout.pp > 1 else None,
    }
    words = [*torchrun(plan), "-m", "torchtitan.train", "--module", "llama3"]
    words += ["--config", CONFIGS[model.name], *dashed(options)]
    if layout.tp > 1 and not layout.sequence_parallel:
        words.append("--parallelism.no-enable_sequence_parallel")
    notes = [
        f"In the config, activation_checkpoint is {RECOMPUTES[layout.remat]}.",
        "The options are those of August 2026 (commit b5bcd76c).",
        *start_note(plan),
    ]
    if layout.cp > 1:
        notes.append(f"How cp attends is up to PyTorch; the plan counts {layout.context}.")
    return Command(words, notes)
