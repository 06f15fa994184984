"""The `jaxpar train` command that runs the layout of a plan."""

import shlex
from dataclasses import replace
from typing import Any

from jaxpar.cost.planner.plan import Plan
from jaxpar.model import Settings
from jaxpar.train.recipe import make_recipe


def train_command(plan: Plan) -> str:
    """The command that trains by a plan: a decoder as deep and as wide as the plan's model.

    Raises:
        ValueError: the trainer cannot run this plan; the message says what, and why.
    """
    model, options = plan.job.architecture, recipe_options(plan)
    if model.experts:
        raise ValueError(
            f"plan: --export jaxpar: {model.name} has layers with {model.experts.count} experts, "
            "and the decoder of `jaxpar train` has none; use a --model without experts"
        )
    try:
        settings = settings_of(plan)
        make_recipe(**options).check(settings)
    except ValueError as error:
        raise ValueError(
            f"plan: --export jaxpar: `jaxpar train` cannot run the first plan: {error}"
        ) from None
    sizes = {name: getattr(settings, name) for name in ("layers", "d_model", "heads", "sequence")}
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
    return (
        f"The decoder has the layers, the width and the query heads of {wanted.name}, reads bytes, "
        f"and has {ours.parameters:,} parameters, not {wanted.parameters:,}."
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
    if layout.zero == 3:
        options["gather"] = "use"
    if layout.sequence_parallel:
        options["sequence_parallel"] = True
    if layout.offload != "none":
        options["offload"] = layout.offload
    return options


def settings_of(plan: Plan) -> Settings:
    """The decoder of `jaxpar train` that is as deep and as wide as the plan's model.

    Raises:
        ValueError: no decoder has these sizes.
    """
    model = plan.job.architecture
    return Settings(
        layers=model.layers, d_model=model.hidden, heads=model.heads, sequence=plan.job.sequence
    )
