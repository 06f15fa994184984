"""The `jaxpar train` command that runs the layout of a plan."""

import shlex
from dataclasses import replace
from typing import Any

from jaxpar.cost.planner.plan import Plan
from jaxpar.model import Settings
from jaxpar.model.attention import RINGS
from jaxpar.train.recipe import make_recipe


def train_command(plan: Plan) -> str:
    """The command that trains by a plan: a decoder as deep and as wide as the plan's model.

    Raises:
        ValueError: the trainer cannot run this plan; the message says what, and why.
    """
    options = recipe_options(plan)
    try:
        settings = settings_of(plan)
        make_recipe(**options).check(settings)
    except ValueError as error:
        raise ValueError(
            f"plan: --export jaxpar: `jaxpar train` cannot run the first plan: {error}"
        ) from None
    names = ["layers", "d_model", "heads", "sequence"]
    if settings.experts:
        names += ["experts", "top_k", "capacity_factor"]
    if settings.shared_experts:
        names.append("shared_experts")
    sizes = {name: getattr(settings, name) for name in names}
    words = ["jaxpar", "train"]
    for name, value in (options | sizes).items():
        words.append(f"--{name.replace('_', '-')}")
        words += [] if value is True else [str(value)]
    return shlex.join(words)


def model_note(plan: Plan) -> str:
    """How the decoder that the command trains differs from the plan's model; empty if it does not.

    Only these sizes are options of `jaxpar train`; the others are its own.
    """
    wanted, ours = plan.job.architecture, settings_of(plan).architecture
    if replace(ours, name=wanted.name) == wanted:
        return ""
    alike = "the width and the query heads"
    if wanted.experts:
        alike = "the width, the query heads and the numbers of experts"
    return (
        f"The decoder has the layers, {alike} of {wanted.name}, reads "
        f"bytes, and has {ours.parameters:,} parameters, not {wanted.parameters:,}."
    )


def context_note(plan: Plan) -> str:
    """How the command attends over cp otherwise than the plan; empty if it does not."""
    counted, ours = plan.layout.context, _context(plan)
    if plan.layout.cp == 1 or counted == ours:
        return ""
    return (
        f"The plan counts {counted}, which `train` cannot run beside a pipeline; {ours} sends as "
        "many bytes."
    )


def recipe_options(plan: Plan) -> dict[str, Any]:
    """The arguments of `make_recipe` for a plan, without those that would say nothing."""
    layout = plan.layout
    # Fused attention keeps no scores: our attention does the same if it is computed again.
    fused = plan.job.architecture.fused_attention and layout.remat == "none"
    options: dict[str, Any] = {
        "mesh": layout.mesh,
        "zero": layout.zero,
        "precision": "bf16",
        "remat": "selective" if fused else layout.remat,
        "microbatches": plan.microbatches,
        "batch": plan.job.batch,
    }
    if layout.pp > 1:
        options["schedule"] = "interleaved" if layout.chunks > 1 else "1f1b"
    if layout.chunks > 1:
        options["chunks"] = layout.chunks
    if layout.cp > 1:
        options["context"] = _context(plan)
    if layout.zero == 3:
        options["gather"] = "use"
    if layout.sequence_parallel:
        options["sequence_parallel"] = True
    if layout.offload != "none":
        options["offload"] = layout.offload
    return options


def settings_of(plan: Plan) -> Settings:
    """The decoder of `jaxpar train` that is as deep and as wide, and has as many experts.

    Raises:
        ValueError: no decoder has these sizes.
    """
    model = plan.job.architecture
    experts, mixture = {}, model.experts
    if mixture:
        # The plan counts as many rows of each expert as tokens choose it where the load is even.
        experts = {"experts": mixture.count, "top_k": mixture.per_token, "capacity_factor": 1.0}
        experts["shared_experts"] = round(mixture.shared / mixture.ffn)
    return Settings(
        layers=model.layers,
        d_model=model.hidden,
        heads=model.heads,
        sequence=plan.job.sequence,
        **experts,
    )


def _context(plan: Plan) -> str:
    """The kind of context that the command names: beside a pipeline no ring, but as many bytes."""
    layout = plan.layout
    return "gather" if layout.pp > 1 and layout.context in RINGS else layout.context
