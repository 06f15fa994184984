"""The verb that looks for the fastest way to train a model on a cluster."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxpar.cli.base import AsJson, app, console, errors_as_bad_use, print_json, show, write_text
from jaxpar.cli.model_options import (
    Adapter,
    BaseBits,
    Ffn,
    Gated,
    GradientBytes,
    Heads,
    Hidden,
    KvHeads,
    Layers,
    Optimizer,
    Vocab,
    check_states,
    model_of,
    of_sizes,
)
from jaxpar.cli.sizes import OF_SEQUENCE, check_sizes, option, parse_axes, tokens, whole

if TYPE_CHECKING:
    from jaxpar.cost.architecture import Architecture
    from jaxpar.cost.planner.fastest import Found
    from jaxpar.cost.planner.plan import Plan
    from jaxpar.cost.sites import Sites

# A line that is \b alone keeps the lines after it as they are.
EXAMPLES = """\b
jaxpar plan --model llama3-70b --hardware h100 --devices 256 --sequence 8192
jaxpar plan --model gpt2-xl --hardware rtx4090 --devices 4
jaxpar plan --layers 24 --hidden 2048 --heads 32 --gated --devices 16 --gradient-bytes 4
jaxpar plan --model gpt3-175b --hardware a100 --mesh tp=8,pp=8,dp=16 --explain
jaxpar plan --devices 64 --mesh dp=8,tp=8 --compare fsdp=64
jaxpar plan --model gpt2-xl --mesh pp=2,dp=2,tp=2 --batch 16 --export jaxpar
jaxpar plan --model llama3-70b --devices 256 --gradient-bytes 4 --overlap --export megatron
jaxpar plan --model gpt2 --hardware rtx4090 --devices 1 --batch 64 --sites 2 --line 1
jaxpar plan --model llama3-70b --hardware rtx4090 --devices 8 --adapter lora:16 --base-bits 4
"""
SEARCHED = "searched unless given"

Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Such as gpt3-175b, or a config.json of Hugging Face; llama3-8b unless given.",
    ),
]
Hardware = Annotated[
    str, typer.Option(metavar="NAME", help="Such as h100, a100, rtx4090, or a TOML file.")
]
Devices = Annotated[int | None, whole("Their number; unless given, that of --mesh, or one node.")]
Batch = Annotated[int, whole("Examples in a step, over all devices.")]
Sequence = Annotated[int | None, whole(OF_SEQUENCE)]
Mesh = Annotated[
    str | None,
    typer.Option(metavar="SIZES", help="Axes that are fixed, of pp, dp, fsdp, ep, cp and tp."),
]
Zero = Annotated[int | None, typer.Option(metavar="0..3", help=f"Stage of ZeRO; {SEARCHED}.")]
Remat = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="What is recomputed: none, selective or full are searched unless given; alternate, "
        "half of the products, is torchtitan's selective.",
    ),
]
Microbatch = Annotated[int | None, whole(f"Examples that a device takes at once; {SEARCHED}.")]
Chunks = Annotated[int | None, whole(f"Parts of the model on each stage of pp; {SEARCHED}.")]
SequenceParallel = Annotated[
    bool | None, typer.Option(help=f"Norms are split over the devices of tp, or not; {SEARCHED}.")
]
Context = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="How the devices of cp attend to each other's positions: zigzag, ring, gather or "
        f"ulysses; {SEARCHED}.",
    ),
]
Offload = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="What host memory keeps: none, optimizer or all; unless given, tried on a mesh that "
        "nothing else fits.",
    ),
]
Overlap = Annotated[
    bool, typer.Option("--overlap", help="Most of what can run beside arithmetic does so.")
]
Eager = Annotated[
    bool,
    typer.Option("--eager", help="Python launches each kernel, as PyTorch does without compiling."),
]
Mtbf = Annotated[
    float | None,
    typer.Option(
        metavar="HOURS", help="Between failures of one device; as for Llama 3 unless given."
    ),
]
SiteCount = Annotated[
    int | None,
    whole("Sites that train one model over lines; --devices and --batch are those of each."),
]
Line = Annotated[
    float | None,
    typer.Option(metavar="GBITS", help="Gb/s of a site's line to the others, one direction."),
]
Top = Annotated[int, whole("The number of plans to show.")]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show every term of the first plan, with its formula.")
]
Schedules = Annotated[
    bool, typer.Option("--schedules", help="Show the first plan under each pipeline schedule.")
]
Compare = Annotated[
    str | None,
    typer.Option(metavar="SIZES", help="Show the first plan beside the best of this mesh."),
]
Export = Annotated[
    str | None,
    typer.Option(
        metavar="PROGRAM",
        help="Print only the command that runs the first plan, of jaxpar (`train`), megatron, "
        "torchtitan or maxtext.",
    ),
]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the plans in a page, too.")]


@app.command("plan", epilog=EXAMPLES)
def plan_training(
    called: typer.Context,
    model: Model = None,
    layers: Layers = None,
    hidden: Hidden = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    ffn: Ffn = None,
    vocab: Vocab = None,
    gated: Gated = False,
    hardware: Hardware = "h100",
    devices: Devices = None,
    batch: Batch = 256,
    sequence: Sequence = None,
    mesh: Mesh = None,
    zero: Zero = None,
    remat: Remat = None,
    microbatch: Microbatch = None,
    chunks: Chunks = None,
    sequence_parallel: SequenceParallel = None,
    context: Context = None,
    offload: Offload = None,
    optimizer: Optimizer = None,
    gradient_bytes: GradientBytes = None,
    adapter: Adapter = None,
    base_bits: BaseBits = None,
    overlap: Overlap = False,
    eager: Eager = False,
    mtbf_hours: Mtbf = None,
    sites: SiteCount = None,
    line: Line = None,
    top: Top = 10,
    explain: Explain = False,
    schedules: Schedules = False,
    compare: Compare = None,
    html: Html = None,
    export: Export = None,
    as_json: AsJson = False,
) -> None:
    """Finds the fastest of all plans that fit, to train a model on a cluster, and says why.

    Whatever you set is kept, and the rest is searched. If you set a --mesh of all devices, the last
    plans are those that would be the fastest, but need up to a tenth more memory than there is; and
    if you set --remat, too, and nothing fits, the smallest plans are shown, with what would fit.
    Models without dropout are taken to have fused attention: with --remat none it keeps no scores
    and computes them twice, as selective does.
    """
    from jaxpar.checks import check_one_of
    from jaxpar.cost.adapters import adapter_states, read_adapter
    from jaxpar.cost.goodput import DEVICE_MTBF_HOURS
    from jaxpar.cost.hardware import find_cluster
    from jaxpar.cost.planner import Job, explore
    from jaxpar.cost.planner.programs import PROGRAMS
    from jaxpar.cost.zero import MIXED

    optimizer, sizes = optimizer or "adamw", of_sizes(called.params)
    choices = {"zero": zero, "remat": remat, "microbatch": microbatch, "chunks": chunks}
    choices |= {"sequence_parallel": sequence_parallel, "context": context, "offload": offload}
    fixed = {name: value for name, value in choices.items() if value is not None}
    mtbf = DEVICE_MTBF_HOURS if mtbf_hours is None else mtbf_hours
    more = {"overlap": overlap, "top": top, "mtbf_hours": mtbf}
    with errors_as_bad_use():
        check_one_of("plan", "--export", export or "jaxpar", ("jaxpar", *PROGRAMS))
        numbers = {"devices": devices, "batch": batch, "sequence": sequence}
        check_sizes("plan", fixed | sizes | numbers)
        check_sizes("plan", {} if sites is None else {"sites": sites})
        joined = _sites(sites, line)
        axes, beside = parse_axes("plan", mesh), parse_axes("plan", compare)
        architecture = _architecture(model, sizes)
        cluster = replace(find_cluster(hardware), eager=eager)
        count = devices or (prod(axes.values()) if axes else cluster.devices_per_node)
        rank, bits = read_adapter("plan", adapter, base_bits)
        if rank and export:
            raise ValueError(
                f"plan: --export {export} with --adapter {adapter}: an adapter stands beside "
                "weights that only you have; export without it, and add what names these"
            )
        check_states("plan", optimizer, gradient_bytes or 2)
        states = replace(MIXED[optimizer], gradients=gradient_bytes or 2)
        if rank:
            states = adapter_states(architecture, states, rank=rank, base_bits=bits)
        job = Job(architecture, cluster, count, batch, tokens(sequence, architecture), states)
        found = explore(job, fixed | axes, **more)
        other = explore(job, fixed | beside, **more).plans[0] if beside else None
        if html:
            from jaxpar.cost.planner.page import page

            write_text("plan", html, page(found, [found.plans[0], other] if other else found.plans))
    if export:
        _export(found.plans[0], export, optimizer, as_json=as_json)
    else:
        with errors_as_bad_use():
            _show(found, other, joined, explain, schedules, as_json)


def _sites(count: int | None, gigabits: float | None) -> Sites | None:
    from jaxpar.cost.communication import Link
    from jaxpar.cost.sites import LATENCY_SECONDS, Sites

    if count is None and gigabits is None:
        return None
    if count is None or gigabits is None or count < 2:
        raise ValueError(
            f"plan: --sites {count} with --line {gigabits}: a line joins two sites or more; give "
            "both options, as --sites 2 --line 1"
        )
    if not 1e-3 <= gigabits <= 1e6:
        raise ValueError(f"plan: --line is {gigabits} Gb/s; use a number from 0.001 to 1000000")
    return Sites(count, Link(LATENCY_SECONDS, gigabits * 1e9 / 8))


def _architecture(model: str | None, sizes: Mapping[str, Any]) -> Architecture:
    from jaxpar.cost.huggingface import read_config
    from jaxpar.cost.models import find_model

    if sizes and model:
        named = " and ".join(map(option, sizes))
        raise ValueError(f"plan: --model {model} with {named}; give a model or its sizes")
    if sizes:
        return model_of("plan", sizes)
    model = model or "llama3-8b"
    is_file = model.endswith(".json") or os.path.exists(model)  # false if it may not be read
    return read_config(model) if is_file else find_model(model)


def _export(plan: Plan, program: str, optimizer: str, *, as_json: bool) -> None:
    with errors_as_bad_use():
        line, notes = _command(plan, program, optimizer)
    data = {"command": line, "note": " ".join(notes)}
    show(as_json, data, [*(f"# {note}" for note in notes), line])


def _command(plan: Plan, program: str, optimizer: str) -> tuple[str, Iterable[str]]:
    """The command that runs a plan, and notes on it."""
    if program == "jaxpar":
        from jaxpar.train.export import context_note, model_note, train_command

        line = train_command(plan) + f" --optimizer {optimizer}" * (optimizer != "adamw")
        return line, [note for note in (model_note(plan), context_note(plan)) if note]
    from jaxpar.cost.planner.programs import PROGRAMS

    command = PROGRAMS[program](plan, optimizer)
    return command.line, command.notes


def _show(
    found: Found,
    other: Plan | None,
    sites: Sites | None,
    explain: bool,
    schedules: bool,
    as_json: bool,
) -> None:
    from jaxpar.cost.planner import report

    plans = [found.plans[0], other] if other else found.plans
    if as_json:
        more: dict[str, Any] = {"sites": report.sites_rows(plans[0], sites)} if sites else {}
        more |= {"schedules": report.schedules_rows(plans[0])} if schedules else {}
        print_json({"plans": [report.to_dict(plan, explain) for plan in plans]} | more)
        return
    parts = [report.compare(plans)] if other else []
    parts += [report.explain(plans[0])] if explain else []
    parts = parts or [report.render(found)]
    parts += [report.sites_table(plans[0], sites)] if sites else []
    parts += [report.schedules_table(plans[0])] if schedules else []
    # A model's name may have brackets, which are markup to rich.
    console().print(*parts, sep="\n\n", markup=False)
