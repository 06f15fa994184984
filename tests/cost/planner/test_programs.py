"""Commands of other programs: options that these have, and the layout that was planned.

The options are read in the programs' own parsers and configs, and are in the folder beside this
file.
"""

import shlex
from math import prod
from pathlib import Path
from typing import Any

import pytest

from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.models import MODELS, find_model
from jaxpar.cost.planner import Job, explore
from jaxpar.cost.planner.plan import Plan
from jaxpar.cost.planner.programs import PROGRAMS
from jaxpar.cost.zero import ADAM_MIXED, States

LLAMA, FOUR = find_model("llama3-8b"), States(2, 4, 12)


def known(program: str) -> set[str]:
    lines = Path(__file__).with_name("options").joinpath(f"{program}.txt").read_text().splitlines()
    assert lines[0].startswith("# ") and "commit" in lines[0]
    return set(lines[1:])


def plan(
    model: str = "llama3-8b",
    devices: int = 64,
    batch: int = 256,
    each: States = ADAM_MIXED,
    overlap: bool = False,
    **fixed: Any,
) -> Plan:
    sizes = find_model(model)
    sequence = min(2048, sizes.positions or 2048)
    job = Job(sizes, find_cluster("h100"), devices, batch, sequence, each)
    return explore(job, fixed, overlap=overlap).plans[0]


def options(program: str, one: Plan, optimizer: str = "adamw") -> dict[str, str]:
    """The options of the command, each with its value or with none."""
    words = shlex.split(PROGRAMS[program](one, optimizer).line)
    if program == "maxtext":
        return dict(word.split("=", 1) for word in words[4:])
    found: dict[str, str] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name, _, value = word.removeprefix("--").partition("=")
            found[name] = value
        elif name and not found[name]:
            found[name] = word
    return found


SHAPES = [
    {"zero": 1},
    {"zero": 3, "remat": "full"},
    {"dp": 64, "zero": 1},
    {"pp": 4, "tp": 4, "dp": 4, "chunks": 4, "zero": 0},
    {"cp": 2, "context": "gather", "zero": 1},
    {"cp": 4, "context": "ulysses", "tp": 2, "sequence_parallel": True, "zero": 0},
    {"dp": 4, "fsdp": 16},
    {"tp": 8, "sequence_parallel": False, "microbatch": 1},
]


@pytest.mark.parametrize("fixed", SHAPES, ids=str)
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_option_is_one_of_the_program(program: str, fixed: dict[str, Any]) -> None:
    one = plan(each=FOUR, overlap=True, **fixed)
    if program == "torchtitan" and one.layout.zero in (1, 2):
        with pytest.raises(ValueError, match="as stage 3 does, or nothing"):
            options(program, one)
        return
    found = options(program, one)
    of_start = {"nproc-per-node", "nnodes", "module", "config"}
    names = {name.replace("parallelism.no-", "parallelism.") for name in found} - of_start
    assert names <= known(program), names - known(program)


@pytest.mark.parametrize("model", sorted(MODELS))
@pytest.mark.parametrize("program", ["megatron", "maxtext"])
def test_every_model_is_written_or_refused(program: str, model: str) -> None:
    sizes = find_model(model)
    tp = 8 if sizes.heads % 8 == 0 and sizes.key_heads % 8 == 0 else 1
    sequence = min(2048, sizes.positions or 2048)
    job = Job(sizes, find_cluster("h100"), 2048, 2048, sequence)
    one = explore(job, {"tp": tp, "zero": 1}).plans[0]
    try:
        found = options(program, one)
    except ValueError as error:
        assert str(error).startswith(f"plan: --export {program}: ")
        return
    layers = found["num-layers" if program == "megatron" else "base_num_decoder_layers"]
    assert int(layers) == one.job.architecture.layers
    assert set(found) - {"nproc-per-node", "nnodes"} <= known(program)


@pytest.mark.parametrize("fixed", SHAPES, ids=str)
def test_megatron_gets_the_layout(fixed: dict[str, Any]) -> None:
    one = plan(each=FOUR, **fixed)
    layout, found = one.layout, options("megatron", one)
    sizes = {"tensor-model": layout.tp, "pipeline-model": layout.pp, "context": layout.cp}
    assert [int(found.get(f"{name}-parallel-size", 1)) for name in sizes] == list(sizes.values())
    assert int(found["nproc-per-node"]) * int(found["nnodes"]) == layout.devices
    assert int(found["micro-batch-size"]) == layout.microbatch
    assert int(found["global-batch-size"]) == one.job.batch
    assert ("sequence-parallel" in found) == layout.sequence_parallel
    assert ("use-distributed-optimizer" in found) == (layout.zero > 0)
    assert ("use-megatron-fsdp" in found) == (layout.zero > 1)
    assert found.get("recompute-granularity", "none") == layout.remat
    if layout.chunks > 1:
        in_chunk = int(found["num-layers-per-virtual-pipeline-stage"])
        assert in_chunk * layout.pp * layout.chunks == LLAMA.layers
    assert "grad-reduce-in-bf16" not in found
    assert "grad-reduce-in-bf16" in options("megatron", plan(**fixed))


def test_megatron_gets_the_model() -> None:
    found = options("megatron", plan())
    assert found | {"num-query-groups": "8", "ffn-hidden-size": "14336"} == found
    assert {"swiglu", "disable-bias-linear", "untie-embeddings-and-output-weights"} <= set(found)
    older = options("megatron", plan("gpt2-xl", 8, 64, tp=1, zero=1), "sgd")
    assert older["max-position-embeddings"] == "1024" and older["optimizer"] == "sgd"
    assert not {"swiglu", "disable-bias-linear", "attention-dropout", "normalization"} & set(older)
    mixture = options("megatron", plan("mixtral-8x7b", 64, 256, ep=8, zero=1))
    assert (mixture["num-experts"], mixture["moe-router-topk"]) == ("8", "2")


def test_torchtitan_gets_the_layout() -> None:
    one = plan(each=FOUR, dp=4, fsdp=8, tp=2)
    found = options("torchtitan", one)
    degrees = [found[f"parallelism.data_parallel_{name}_degree"] for name in ("replicate", "shard")]
    assert degrees == ["4", "8"] and found["parallelism.tensor_parallel_degree"] == "2"
    tokens = int(found["training.num_tokens_per_microbatch_per_dp_rank"])
    assert tokens == one.layout.microbatch * 2048
    assert int(found["training.num_tokens_per_train_step"]) == 256 * 2048
    whole = options("torchtitan", plan(each=FOUR, dp=64, zero=0, remat="full"))
    assert whole["parallelism.data_parallel_replicate_degree"] == "64"
    assert whole["parallelism.data_parallel_shard_degree"] == "1"


def test_half_of_the_products_is_what_torchtitan_recomputes_and_megatron_does_not() -> None:
    one = plan(each=FOUR, zero=3, remat="alternate")
    assert "SelectiveAC.Config()" in " ".join(PROGRAMS["torchtitan"](one, "adamw").notes)
    with pytest.raises(ValueError, match="--export megatron: it recomputes no half"):
        options("megatron", one)


@pytest.mark.parametrize("fixed", SHAPES, ids=str)
def test_maxtext_gets_the_layout(fixed: dict[str, Any]) -> None:
    """Axes inside a node multiply to its 8 devices, and all to the devices of the job."""
    one = plan(**fixed)
    found = options("maxtext", one)
    inside = prod(int(n) for name, n in found.items() if name.startswith("ici_"))
    between = prod(int(n) for name, n in found.items() if name.startswith("dcn_"))
    assert (inside, between) == (8, 8)
    steps = int(found.get("gradient_accumulation_steps", 1))
    assert float(found["per_device_batch_size"]) * steps * 64 == one.job.batch
    if one.layout.pp > 1:
        stages = one.layout.pp * one.layout.chunks
        assert int(found["num_layers_per_pipeline_stage"]) * stages == LLAMA.layers
        assert int(found["num_pipeline_microbatches"]) == one.microbatches


@pytest.mark.parametrize(
    ("program", "fixed", "reason"),
    [
        ("megatron", {"optimizer": "adam8bit"}, "it has no adam8bit"),
        ("torchtitan", {"model": "gpt2-xl", "devices": 8, "batch": 64}, "no config of gpt2-xl"),
        ("torchtitan", {"zero": 0, "remat": "full"}, "which are --gradient-bytes 4"),
        ("maxtext", {"model": "gpt2-xl", "devices": 8, "batch": 64}, "other norms than the two"),
        ("maxtext", {"zero": 2, "dp": 64, "remat": "full"}, "and no gradients"),
        ("megatron", {"model": "gemma2-2b", "devices": 8, "tp": 1}, "other norms than its two"),
        ("maxtext", {"model": "gemma2-2b", "devices": 8, "tp": 1}, "other norms than the two"),
        ("megatron", {"model": "deepseek-v3", "devices": 2048, "batch": 4096}, "latent attention"),
    ],
)
def test_what_a_program_does_not_have_is_refused(
    program: str, fixed: dict[str, Any], reason: str
) -> None:
    sizes = {name: value for name, value in fixed.items() if name != "optimizer"}
    with pytest.raises(ValueError, match=reason) as refused:
        options(program, plan(**sizes), fixed.get("optimizer", "adamw"))
    assert str(refused.value).startswith(f"plan: --export {program}: ")
