"""The verb that says what a model takes on each device."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxpar.cli.base import WRONG, AsJson, app, errors_as_bad_use, show
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
    from jaxpar.cost.planner.footprint import Footprint
    from jaxpar.cost.planner.footprint_report import Answer
    from jaxpar.layout import Layout

PER_NODE, MOST_PARAMETERS = 8, 1e18
ESTIMATORS = "deepspeed, deepspeed-docs, megatron, accelerate, eleuther"
OF_TRAINING = (
    "zero", "microbatch", "remat", "sequence_parallel", "chunks", "offload", "optimizer",
    "gradient_bytes", "adapter", "base_bits",
)  # fmt: skip
OF_INFERENCE = ("cache_bits", "group")

Name = Annotated[
    str | None, typer.Option("--model", metavar="NAME", help="The model, such as llama3-8b.")
]
Config = Annotated[
    Path | None, typer.Option(metavar="PATH", help="Or its config.json, as Hugging Face has it.")
]
Parameters = Annotated[
    float | None,
    typer.Option(metavar="N", help="Or only their number, such as 128e9: states alone."),
]
IsTrained = Annotated[
    bool, typer.Option("--training/--inference", help="Mixed precision, with Adam; or inference.")
]
Devices = Annotated[
    int | None, whole("Their number; those that --mesh leaves become dp, or with --zero 3 fsdp.")
]
Mesh = Annotated[
    str | None,
    typer.Option(metavar="SIZES", help="Sizes of pp, dp, fsdp, ep, cp and tp, as tp=8,pp=4."),
]
Sequence = Annotated[int | None, whole(OF_SEQUENCE)]
Batch = Annotated[
    int | None, whole("Examples in a step over all devices; in inference, on each copy.")
]
Microbatch = Annotated[
    int | None, whole("Examples that go through a device at once; 1 unless given.")
]
Zero = Annotated[
    int | None,
    typer.Option(metavar="0..3", help="The stage of ZeRO; unless given, 3 over fsdp, else 0."),
]
Remat = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT",
        help="What is recomputed: none, selective (scores), alternate (half of the products) or "
        "full.",
    ),
]
SequenceParallel = Annotated[
    bool,
    typer.Option(
        "--sequence-parallel", help="Norms are split over the devices of tp, by positions."
    ),
]
Chunks = Annotated[int | None, whole("Parts of the model on each stage of pp; 1 unless given.")]
Offload = Annotated[
    str | None, typer.Option(metavar="WHAT", help="What host memory keeps: none, optimizer or all.")
]
WeightBits = Annotated[int | None, whole("Bits of a parameter, in inference; 16 unless given.")]
CacheBits = Annotated[int | None, whole("Bits of a key or value, in inference; 16 unless given.")]
Group = Annotated[int | None, whole("Parameters that share a scale, in inference.")]
Hardware = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Does it fit on this, such as h100, or a TOML file?"),
]
Estimator = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"Answer as another tool does: {ESTIMATORS}.")
]
LargestLayer = Annotated[
    float | None, typer.Option(metavar="N", help="Parameters of the largest layer, for deepspeed.")
]


# A line that is \b alone keeps the lines after it as they are.
EXAMPLES = """\b
Examples:
  jaxpar memory --model llama3-8b --devices 8 --zero 3 --hardware h100
  jaxpar memory --model gpt3-175b --mesh tp=8,pp=8 --remat selective
  jaxpar memory --model llama3-70b --inference --mesh tp=4 --batch 16
  jaxpar memory --parameters 128e9 --devices 1024 --zero 2
  jaxpar memory --model llama3-8b --devices 8 --zero 1 --optimizer adam8bit
  jaxpar memory --model llama3-70b --adapter lora:16 --base-bits 4 --remat full
"""


@app.command("memory", epilog=EXAMPLES)
def show_memory(
    context: typer.Context,
    model: Name = None,
    config: Config = None,
    layers: Layers = None,
    hidden: Hidden = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    ffn: Ffn = None,
    vocab: Vocab = None,
    gated: Gated = False,
    parameters: Parameters = None,
    training: IsTrained = True,
    devices: Devices = None,
    mesh: Mesh = None,
    sequence: Sequence = None,
    batch: Batch = None,
    microbatch: Microbatch = None,
    zero: Zero = None,
    remat: Remat = None,
    sequence_parallel: SequenceParallel = False,
    chunks: Chunks = None,
    offload: Offload = None,
    optimizer: Optimizer = None,
    gradient_bytes: GradientBytes = None,
    adapter: Adapter = None,
    base_bits: BaseBits = None,
    weight_bits: WeightBits = None,
    cache_bits: CacheBits = None,
    group: Group = None,
    hardware: Hardware = None,
    estimator: Estimator = None,
    largest_layer: LargestLayer = None,
    as_json: AsJson = False,
) -> None:
    """Shows the memory that a model takes on each device, term by term, with the formulas.

    It covers training and inference. With --hardware it says whether the model fits, and if it
    does not, what would. Models without dropout are taken to have fused attention, which keeps no
    scores: for them --remat none is the same as selective.
    """
    with errors_as_bad_use():
        answer = _answer({name: it for name, it in context.params.items() if it is not None})
    show(as_json, answer.to_dict(), answer.lines())
    if not answer.fits:
        raise typer.Exit(WRONG)


def _answer(given: Mapping[str, Any]) -> Answer:
    from jaxpar.cost.estimators import ESTIMATORS, estimate
    from jaxpar.cost.hardware import find_cluster
    from jaxpar.cost.planner.footprint_report import Answer

    check_sizes("memory", given)
    footprint = _footprint(given)
    cluster = find_cluster(given["hardware"]) if "hardware" in given else None
    if "estimator" not in given:
        return Answer(footprint, footprint.terms(), footprint.host_terms(), cluster)
    tool, node = given["estimator"], cluster.devices_per_node if cluster else PER_NODE
    more = {"largest_layer": _number("largest_layer", given), "bits": given.get("weight_bits")}
    terms, host = estimate(tool, footprint, devices_per_node=node, **more)
    return Answer(footprint, terms, host, cluster, tool, ESTIMATORS[tool])


def _footprint(given: Mapping[str, Any]) -> Footprint:
    from jaxpar.cost.adapters import read_adapter
    from jaxpar.cost.architecture import Architecture
    from jaxpar.cost.planner.footprint import Inference, Training

    trained, tool = given["training"], given.get("estimator", "")
    mode = "--training" if trained else "--inference"
    idle: dict[str, str] = dict.fromkeys(OF_INFERENCE if trained else OF_TRAINING, mode)
    if trained and tool not in ("accelerate", "eleuther"):
        idle["weight_bits"] = mode
    if tool:
        for name in ("optimizer", "gradient_bytes", "adapter", "base_bits"):
            idle[name] = f"--estimator {tool}, which counts Adam on all parameters,"
    if not tool.startswith("deepspeed"):
        idle["largest_layer"] = f"--estimator {tool}" if tool else "no --estimator deepspeed"
    for name, reason in idle.items():
        if given.get(name):
            raise ValueError(f"memory: {option(name)} with {reason} says nothing; leave it out")
    model, layout = _model(given), _layout(given)
    sequence = tokens(given.get("sequence"), model)
    if trained:
        optimizer, gradient_bytes = given.get("optimizer", "adamw"), given.get("gradient_bytes", 2)
        check_states("memory", optimizer, gradient_bytes)
        rank, bits = read_adapter("memory", given.get("adapter"), given.get("base_bits"))
        if rank and not isinstance(model, Architecture):
            raise ValueError(
                f"memory: --adapter {given['adapter']} with a number of parameters: adapters stand "
                "beside matrices whose sizes are not known; give a --model or its sizes"
            )
        batch = given.get("batch")
        footprint = Training(model, layout, sequence, batch, optimizer, gradient_bytes, rank, bits)
    else:
        names = ("weight_bits", "cache_bits", "group")
        bits = {name: given[name] for name in names if name in given}
        footprint = Inference(model, layout, sequence, layout.microbatch, **bits)
    footprint.check("memory")
    return footprint


def _model(given: Mapping[str, Any]) -> Architecture | float:
    sizes = of_sizes(given)
    ways = [name for name in ("model", "config", "parameters") if name in given]
    if len(ways) + bool(sizes) != 1:
        named = " and ".join(map(option, [*ways, *sizes])) or "no model"
        raise ValueError(
            f"memory: {named}; give one of --model, --config, --parameters, or --layers with "
            "--hidden and --heads"
        )
    if sizes:
        return model_of("memory", sizes)
    if "config" in given:
        from jaxpar.cost.huggingface import read_config

        return read_config(given["config"])
    if "model" in given:
        from jaxpar.cost.models import find_model

        return find_model(given["model"])
    return _number("parameters", given)


def _number(name: str, given: Mapping[str, Any]) -> Any:
    """Returns a number of parameters, or None if it is not given."""
    number = given.get(name)
    if number is not None and not 1 <= number <= MOST_PARAMETERS:
        raise ValueError(
            f"memory: {option(name)} {number}; give how many parameters there are, as in 128e9, "
            f"{MOST_PARAMETERS:.0e} at most"
        )
    return number


def _layout(given: Mapping[str, Any]) -> Layout:
    from jaxpar.checks import check_one_of
    from jaxpar.cost.layout import KNOWN_REMATS
    from jaxpar.layout import OFFLOAD_KINDS, ZERO_STAGES, Layout

    sizes = parse_axes("memory", given.get("mesh"))
    allowed = {"zero": ZERO_STAGES, "remat": KNOWN_REMATS, "offload": tuple(OFFLOAD_KINDS)}
    for name in allowed:
        if name in given:
            check_one_of("memory", option(name), given[name], allowed[name])
    zero = given.get("zero", 3 if sizes.get("fsdp", 1) > 1 else 0)
    named = prod(sizes.values())
    devices = given.get("devices", named)
    rest = "fsdp" if zero == 3 else "dp"
    if devices % named or (devices > named and rest in sizes):
        raise ValueError(
            f"memory: mesh {given['mesh']} ({named:,} devices) on {devices:,} devices; their "
            f"product must divide them, and what is left is {rest}; use --devices "
            f"{max(round(devices / named), 1) * named if rest not in sizes else named}"
        )
    if devices > named:
        sizes[rest] = devices // named
    names = ("microbatch", "chunks", "remat", "offload")
    chosen = {name: given[name] for name in names if name in given}
    if not given["training"]:
        chosen["microbatch"] = given.get("batch", 1)
    return Layout(**sizes, **chosen, zero=zero, sequence_parallel=given["sequence_parallel"])
