"""The verbs that train: one process, or several on this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxpar.cli.base import AS_JSON, LEFT, AsJson, app, print_json, tell
from jaxpar.course.catalog import BadUseError

if TYPE_CHECKING:
    from jaxpar.model import Settings
    from jaxpar.train.weights import Weights

DISTRIBUTED = ("train", "doctor")
MOST_PROCESSES, MOST_DEVICES = 64, 512  # a process takes about half a gigabyte
PRECISION = (
    "What is sent and multiplied: fp32, bf16 or fp16. The optimizer keeps its weights in float32, "
    "and fp16 scales the loss."
)
MeshOption = Annotated[
    str,
    typer.Option(
        metavar="SIZES",
        help="The axes of the mesh: dp, fsdp and ep split the batch, and ep the experts too, cp "
        "the positions, tp each layer, and pp the stack of layers.",
    ),
]
Zero = Annotated[
    int | None,
    typer.Option(
        metavar="0..3",
        help="Stage of ZeRO: 0 replicates all states, 1 shards the optimizer state, 2 the "
        "gradients too, 3 the parameters too. Unless given, 3 over fsdp and 0 elsewhere.",
    ),
]
Gather = Annotated[
    str | None,
    typer.Option(
        metavar="WHEN",
        help="When stage 3 gathers parameters: for each use of a layer, which needs the least "
        "memory, or once a step, which sends the least where microbatches are many.",
    ),
]
Optimizer = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What updates the parameters: adamw, adam8bit (the same with moments in 8 bits, about "
        "2 bytes a parameter in place of 8) or sgd.",
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        metavar="RATE",
        help="The highest learning rate; unless given, 0.1 with sgd and 0.001 with others.",
    ),
]
Warmup = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="Steps over which the learning rate rises to its highest."
    ),
]
Decay = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="How the learning rate falls to a tenth: none (it stays), cosine (over all steps "
        "after the warm-up) or wsd (linearly, in the last tenth of the steps; until it falls, a "
        "run can be resumed with other --steps).",
    ),
]
SkipSpikes = Annotated[
    float | None,
    typer.Option(
        metavar="FACTOR",
        help="Skip a step whose gradient norm is not finite, or above FACTOR times the running "
        "mean of the norms before it.",
    ),
]
Average = Annotated[
    float | None,
    typer.Option(
        metavar="DECAY",
        help="Keep an exponential average of the parameters, in float32, which is validated and "
        "saved; with 0.999, over about 1000 steps.",
    ),
]
BatchRamp = Annotated[
    str | None,
    typer.Option(
        metavar="FIRST:STEPS",
        help="Begin with FIRST examples in a batch, and double them until STEPS steps later there "
        "are --batch; every size has equally many steps.",
    ),
]
Distill = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Learn from a decoder that train --checkpoint has saved there, of any size and the "
        "same tokens: part of the loss is how far the probabilities are from its own.",
    ),
]
DistillWeight = Annotated[
    float | None,
    typer.Option(metavar="PART", help="Which part of the loss that is; 0.5 unless given."),
]
Temperature = Annotated[
    float | None,
    typer.Option(metavar="T", help="What the logits of both are divided by in it; 2 unless given."),
]
MupBase = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="WIDTH",
        help="Scale rates, logits and layers by muP, so that a learning rate that is best at "
        "--d-model WIDTH is best at others; let --heads grow with --d-model.",
    ),
]
WeightDecay = Annotated[
    float | None,
    typer.Option(
        metavar="W",
        help="How much adamw and adam8bit shrink matrices in each step, over the learning rate; "
        "norms stay. 0.01 unless given.",
    ),
]
Clip = Annotated[
    float | None,
    typer.Option(metavar="NORM", help="Scale gradients down where their global norm exceeds this."),
]
SyncEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Let each device of dp, with those that share its copy of the model, take N steps by "
        "itself before all average: local SGD. N must divide --steps.",
    ),
]
Outer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="After the local steps, what becomes of the parameters: average, or nesterov, a step "
        "of SGD with Nesterov momentum towards the average, as DiLoCo has it; average unless "
        "given.",
    ),
]
Compress = Annotated[
    str | None,
    typer.Option(
        metavar="SCHEME",
        help="How gradients, or with --sync-every what local steps have changed, are sent over dp, "
        "with error feedback: int8, int4, sign, topk=FRACTION (the part of the numbers that each "
        "device sends), or powersgd=RANK.",
    ),
]
Remat = Annotated[
    str,
    typer.Option(
        metavar="WHAT",
        help="What is recomputed for the gradient: none; full (a layer keeps only its input); "
        "selective (attention); products (all but products with weights); alternate (half of "
        "these, too); segments (only some layers keep their input).",
    ),
]
Microbatches = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="Parts of its batch that each device takes one after the other."
    ),
]
SequenceParallel = Annotated[
    bool,
    typer.Option("--sequence-parallel", help="Split norms over the devices of tp, by positions."),
]
Schedule = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The pipeline schedule over pp: a name, as `schedule` draws it, or a table in "
        "FILE.csv; 1f1b unless given.",
    ),
]
Chunks = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Parts of the layers on each device of pp, where the schedule leaves it open: 2 for "
        "interleaved and breadth-first unless given.",
    ),
]
Offload = Annotated[
    str | None,
    typer.Option(
        metavar="WHAT", help="Where the optimizer state waits between steps: none, host or disk."
    ),
]
Context = Annotated[
    str | None,
    typer.Option(
        metavar="HOW",
        help="How the devices of cp attend to each other's positions: zigzag (a ring with equal "
        "work), ring, gather (all keys and values) or ulysses (by heads). Unless "
        "given, gather over pp and zigzag elsewhere.",
    ),
]
Attention = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Attention where positions are not split: flash (by tiles) or plain (all scores at "
        "once); unless given, flash from 512 positions on.",
    ),
]
Experts = Annotated[
    int,
    typer.Option(
        min=0, metavar="N", help="MLPs in each layer, to some of which each token goes; 0: one MLP."
    ),
]
TopK = Annotated[
    int, typer.Option(min=1, metavar="K", help="To how many of the experts each token goes.")
]
CapacityFactor = Annotated[
    float | None,
    typer.Option(
        metavar="FACTOR",
        help="Rows of each expert, over its even part of a device's tokens; what finds none is "
        "dropped. Unless given, nothing is.",
    ),
]
SharedExperts = Annotated[
    int, typer.Option(min=0, metavar="N", help="Further experts, to which every token goes.")
]
Balance = Annotated[
    str,
    typer.Option(
        metavar="HOW",
        help="What balances the load of experts: loss (an auxiliary loss), bias (of each expert, "
        "moved against its load) or none.",
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="A text: a file, or a folder, whose text files are joined in the order of their "
        "paths, without hidden ones. Parquet files, JSON Lines (.jsonl) and datasets saved by the "
        "library datasets have documents, in the column text or the only one with text. Without "
        "it, the sources of Python's library.",
    ),
]
TokenizerFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="A tokenizer.json of the library tokenizers (pip install tokenizers), which sets the "
        "size of the vocabulary; without it, each byte is a token.",
    ),
]
DocumentMasks = Annotated[
    bool,
    typer.Option(
        "--document-masks",
        help="Let each position attend within its own document only, of a text that has documents.",
    ),
]
ValidateEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Hold the end of the text out of training, and after every N steps and the last one "
        "print the mean loss of up to 16 batches that are evenly spread over it.",
    ),
]
ValidationFraction = Annotated[
    float | None,
    typer.Option(
        "--validation",
        metavar="FRACTION",
        help="How much of the text is held out; 0.05 unless given.",
    ),
]
BeginFrom = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="DIR",
        help="Begin with the weights in this folder, which say how large the decoder is: a model "
        "of Hugging Face (safetensors and config.json, of the family of Llama or GPT-2), or a run "
        "that `train --checkpoint` has saved, on any mesh. Its tokenizer.json is used, too.",
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        metavar="lora:RANK",
        help="Train only two narrow matrices of this rank beside each matrix of a layer (LoRA); "
        "the weights of --from stay as they are.",
    ),
]
BaseBits = Annotated[
    int | None,
    typer.Option(
        metavar="8|4",
        help="Keep these matrices in 8 bits, or in 4 as NF4 (QLoRA); a layer has them as numbers "
        "only while it is computed.",
    ),
]
Steps = Annotated[int, typer.Option(min=1, metavar="N", help="Training steps.")]
Layers = Annotated[int, typer.Option(min=1, metavar="N", help="Layers of the decoder.")]
DModel = Annotated[int, typer.Option(min=1, metavar="N", help="The size of an activation.")]
Heads = Annotated[int, typer.Option(min=1, metavar="N", help="Attention heads.")]
Seed = Annotated[
    int,
    typer.Option(
        min=0, max=2**31 - 1, metavar="N", help="Chooses the parameters and the order of examples."
    ),
]
Batch = Annotated[
    int, typer.Option(min=1, metavar="N", help="Examples in a step, over all devices.")
]
Sequence = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="Tokens in an example; with --from, unless given, as many as learned positions reach.",
    ),
]
CheckpointFolder = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint",
        metavar="DIR",
        help="Save the run in this folder while it goes on, after its last step, and after the "
        "running step when SIGTERM asks it to end.",
    ),
]
Every = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Steps between two checkpoints; 100 unless given."),
]
Keep = Annotated[
    int | None,
    typer.Option(min=1, metavar="K", help="How many checkpoints are kept; 3 unless given."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Go on from the newest whole checkpoint, on any mesh, up to --steps in all.",
    ),
]
Timeout = Annotated[
    int, typer.Option(min=1, metavar="N", help="Seconds to wait for the other processes.")
]
WatchdogSeconds = Annotated[
    int | None,
    typer.Option(
        "--watchdog",
        min=1,
        metavar="N",
        help="Seconds without a completed step after which a process says where it stands and ends "
        "with 75. Unless given, 10 times the median step and at least 60 under launch "
        "--max-restarts; elsewhere nothing watches.",
    ),
]
Track = Annotated[
    str | None,
    typer.Option(
        metavar="KIND",
        help="Record each step: in a table (csv), or for tensorboard, wandb (offline, unless "
        "WANDB_MODE is set) or mlflow, which are installed by the extra jaxpar[track].",
    ),
]
TrackTo = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of that record; unless given, the name of --checkpoint with -record "
        "after it, or a new folder in runs/. A run that is resumed goes on in its record.",
    ),
]
ProfileFolder = Annotated[
    Path | None,
    typer.Option(
        "--profile",
        metavar="DIR",
        help="Trace three steps, after the first two, into this folder, which TensorBoard and "
        "Perfetto show; say how long the parts of a step take, and collectives, and how much of "
        "these no computing hides.",
    ),
]


# A line that is \b alone keeps the lines after it as they are.
EXAMPLES = """\b
Examples:
  jaxpar train --mesh dp=8 --steps 50
  jaxpar train --mesh fsdp=8 --zero 3 --precision bf16 --remat full
  jaxpar train --mesh dp=2,tp=4 --sequence-parallel
  jaxpar train --mesh pp=4,dp=2 --schedule 1f1b --microbatches 8
  jaxpar train --mesh pp=2,dp=2,fsdp=2,tp=2 --microbatches 4 --clip 1
  jaxpar train --mesh cp=8 --sequence 2048 --batch 1 --context zigzag
  jaxpar train --mesh ep=4,dp=2 --experts 8 --top-k 2
  jaxpar train --mesh dp=4,tp=2 --sync-every 10 --outer nesterov
  jaxpar train --mesh dp=8 --compress int8
  jaxpar train --mesh dp=8 --sync-every 10 --outer nesterov --compress int4
  jaxpar train --mesh dp=8 --steps 500 --warmup 50 --decay wsd --clip 1
  jaxpar train --mesh dp=8 --steps 500 --data FOLDER --validate-every 100
  jaxpar train --mesh dp=8 --steps 500 --batch-ramp 8:100 --average 0.99 --validate-every 100
  jaxpar train --mesh fsdp=8 --steps 1000 --checkpoint run1 --every 100
  jaxpar train --mesh fsdp=4,tp=2 --steps 1000 --checkpoint run1 --resume
  jaxpar train --mesh dp=4,tp=2 --steps 500 --layers 2 --distill run1 --temperature 2
  jaxpar train --mesh dp=8 --steps 500 --validate-every 100 --track csv --track-to record1
  jaxpar train --mesh dp=4,tp=2 --steps 5 --profile trace1
  jaxpar train --mesh fsdp=4,tp=2 --from FOLDER --learning-rate 1e-5 --checkpoint run2
  jaxpar train --mesh fsdp=8 --from FOLDER --adapter lora:16 --base-bits 4 --checkpoint run3
"""


@app.command("train", epilog=EXAMPLES)
def train_model(
    of_command: typer.Context,
    mesh: MeshOption = "dp=8",
    zero: Zero = None,
    precision: Annotated[str, typer.Option(metavar="WHAT", help=PRECISION)] = "fp32",
    remat: Remat = "products",
    microbatches: Microbatches = 1,
    offload: Offload = None,
    sequence_parallel: SequenceParallel = False,
    schedule: Schedule = None,
    chunks: Chunks = None,
    gather: Gather = None,
    optimizer: Optimizer = "adamw",
    learning_rate: LearningRate = None,
    warmup: Warmup = 0,
    decay: Decay = "none",
    weight_decay: WeightDecay = None,
    skip_spikes: SkipSpikes = None,
    average: Average = None,
    batch_ramp: BatchRamp = None,
    distill: Distill = None,
    distill_weight: DistillWeight = None,
    temperature: Temperature = None,
    clip: Clip = None,
    context: Context = None,
    attention: Attention = None,
    sync_every: SyncEvery = None,
    outer: Outer = None,
    compress: Compress = None,
    steps: Steps = 50,
    data: DataOption = None,
    tokenizer: TokenizerFile = None,
    document_masks: DocumentMasks = False,
    validate_every: ValidateEvery = None,
    validation: ValidationFraction = None,
    seed: Seed = 0,
    begin_from: BeginFrom = None,
    adapter: Adapter = None,
    base_bits: BaseBits = None,
    layers: Layers = 4,
    d_model: DModel = 256,
    heads: Heads = 8,
    experts: Experts = 0,
    top_k: TopK = 2,
    capacity_factor: CapacityFactor = None,
    shared_experts: SharedExperts = 0,
    balance: Balance = "loss",
    mup_base: MupBase = None,
    batch: Batch = 16,
    sequence: Sequence = 128,
    checkpoint: CheckpointFolder = None,
    every: Every = None,
    keep: Keep = None,
    resume: Resume = False,
    timeout: Timeout = 60,
    watchdog: WatchdogSeconds = None,
    track: Track = None,
    track_to: TrackTo = None,
    profile: ProfileFolder = None,
    as_json: AsJson = False,
) -> None:
    """Trains a decoder on bytes or tokens of a text, and shows what each device sends and holds.

    It simulates as many CPU devices as the mesh needs, unless there are others, or the environment
    chooses: JAX_PLATFORMS, JAX_NUM_CPU_DEVICES, or a device count in XLA_FLAGS. To train in
    several processes, run this in each. Slurm, Open MPI and Kubernetes are detected; elsewhere set
    JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID.
    """
    from jaxpar.train.launch import follow_launcher

    follow_launcher()
    recipe = {
        "mesh": mesh, "zero": zero, "precision": precision, "remat": remat,
        "microbatches": microbatches, "offload": offload, "sequence_parallel": sequence_parallel,
        "schedule": schedule, "chunks": chunks, "batch": batch, "gather": gather,
        "optimizer": optimizer, "clip": clip, "context": context, "attention": attention,
        "sync_every": sync_every, "outer": outer, "compress": compress,
        "learning_rate": learning_rate, "warmup": warmup, "decay": decay,
        "weight_decay": weight_decay, "skip_spikes": skip_spikes, "average": average,
        "batch_ramp": batch_ramp, "distill": distill, "distill_weight": distill_weight,
        "temperature": temperature, "steps": steps,
    }  # fmt: skip
    sizes = {
        "layers": layers, "d_model": d_model, "heads": heads, "sequence": sequence,
        "experts": experts, "top_k": top_k, "capacity_factor": capacity_factor,
        "shared_experts": shared_experts, "balance": balance, "mup_base": mup_base,
    }  # fmt: skip
    options = {
        "data": data, "tokenizer": tokenizer, "seed": seed, "timeout_seconds": timeout,
        "watchdog_seconds": watchdog, "profile": profile, "document_masks": document_masks,
    }  # fmt: skip
    keeping = {"folder": checkpoint, "every": every, "keep": keep, "resume": resume}
    validating = {"every": validate_every, "fraction": validation}
    tracking = {"tracker": track, "folder": track_to}
    chosen = _chosen(of_command, sizes, begin_from, adapter, base_bits)
    _train(steps, as_json, chosen, recipe, options, keeping, validating, tracking)


@dataclass(frozen=True)
class _Chosen:
    """The options that say what the decoder is: its sizes, or a folder with weights.

    `sequence` is None if it was not given. Beside the weights there may be an adapter.
    """

    sizes: dict[str, Any]
    folder: Path | None
    sequence: int | None
    adapter: str | None
    base_bits: int | None

    def decoder(self) -> tuple[Settings, Weights | None]:
        """The decoder, and the weights that its run begins with."""
        from jaxpar.cost.adapters import read_adapter
        from jaxpar.model import Settings
        from jaxpar.train.weights import open_weights

        if self.folder is None:
            read_adapter("train", None, self.base_bits)
            return Settings(**self.sizes), None
        rank, bits = read_adapter("train", self.adapter, self.base_bits)
        weights = open_weights(f"train: --from {self.folder}", self.folder)
        settings = weights.settings_for(self.sequence, self.sizes["sequence"])
        return replace(settings, adapter_rank=rank, base_bits=bits), weights


def _chosen(
    context: typer.Context,
    sizes: dict[str, Any],
    folder: Path | None,
    adapter: str | None,
    base_bits: int | None,
) -> _Chosen:
    """The sizes of the options, or the folder; not both.

    Raises:
        BadUseError: a size is given beside a folder, or an adapter without one.
    """
    if adapter and not folder:
        raise BadUseError(
            f"train: --adapter {adapter} without --from: an adapter stands beside weights that are "
            "trained already; give their folder with --from"
        )
    sources = {name: context.get_parameter_source(name) for name in sizes}
    given = [name for name, source in sources.items() if source and source.name != "DEFAULT"]
    for name in (name for name in given if folder and name != "sequence"):
        option = f"--{name.replace('_', '-')}"
        raise BadUseError(
            f"train: {option} {sizes[name]} with --from {folder}: the weights say what the decoder "
            f"is; leave {option} out"
        )
    sequence = sizes["sequence"] if "sequence" in given else None
    return _Chosen(sizes, folder, sequence, adapter, base_bits)


def _train(
    count: int,
    as_json: bool,
    chosen: _Chosen,
    recipe: dict[str, Any],
    options: dict[str, Any],
    keeping: dict[str, Any],
    validating: dict[str, Any],
    tracking: dict[str, Any],
) -> None:
    """Trains and prints until the end, Ctrl-C or SIGTERM, and then ends this process."""
    with _held_back() as interrupts:
        from rich.console import Console

        from jaxpar.train.checkpoint import make_keeping
        from jaxpar.train.cluster import find_place, leave
        from jaxpar.train.launch import TERMINATED
        from jaxpar.train.profile import check_profile
        from jaxpar.train.recipe import make_recipe
        from jaxpar.train.run import StepResult, results, start
        from jaxpar.train.screen import show_end, show_start, show_steps
        from jaxpar.train.termination import Terminated
        from jaxpar.train.tracking import make_tracking
        from jaxpar.train.validation import make_validating

    place, run, taken, code = None, None, [], 0
    screen = Console(highlight=False, quiet=as_json)
    try:
        if interrupts:
            raise KeyboardInterrupt
        place = find_place(os.environ)
        screen.quiet |= bool(place and place.rank)
        with screen.status("Starting"):
            made = make_recipe(**recipe)
            made.check_steps(count)
            check_profile(options["profile"], made, count)
            options["keeping"] = make_keeping(made, **keeping)
            options["validating"] = make_validating(made, **validating)
            settings, options["weights"] = chosen.decoder()
            sizes = {name: getattr(settings, name) for name in chosen.sizes}
            options["tracking"] = make_tracking(
                **tracking,
                keeping=options["keeping"],
                options=_given(
                    sizes,
                    recipe,
                    options,
                    {
                        "validate_every": validating["every"],
                        "adapter": chosen.adapter,
                        "base_bits": chosen.base_bits,
                    },
                ),
                writes=not (place and place.rank),
            )
            run = start(settings, made, place, **options)
        with closing(run):
            show_start(run, recipe["mesh"], screen)
            for step in show_steps(run, count, screen):
                told = step.largest_load, step.dropped, step.validated, step.skipped
                taken.append(StepResult(step.loss, step.gradient_norm, step.seconds, *told))
    except Terminated:
        code = TERMINATED
    except (KeyboardInterrupt, Exception) as error:
        code = tell(error, alone=place is None)
    if code in (0, LEFT, TERMINATED) and not (place and place.rank):
        if as_json:
            print_json(results(run, taken))
        elif run:
            show_end(run, taken, count, screen)
    leave(code, place)


def _given(*options: dict[str, Any]) -> dict[str, Any]:
    """All options that have a plain value, by name, as data for JSON."""
    flat = {name: value for some in options for name, value in some.items()}
    plain = {name: str(value) if isinstance(value, Path) else value for name, value in flat.items()}
    return {name: value for name, value in plain.items() if isinstance(value, str | int | float)}


@contextmanager
def _held_back() -> Iterator[list[int]]:
    """Holds Ctrl-C back and yields a list of the signals: JAX breaks if its import ends early."""
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)


@app.command("launch", context_settings={"allow_interspersed_args": False})
def launch_processes(
    arguments: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND", help="The command to run: train or doctor, and its options."
        ),
    ],
    processes: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_PROCESSES, metavar="N", help="Processes on this machine, at most 64."
        ),
    ] = 2,
    devices: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_DEVICES, metavar="N", help="Simulated devices in each, at most 512."
        ),
    ] = 4,
    max_restarts: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="How many times all processes are started again, from the newest whole "
            "checkpoint, after one has died.",
        ),
    ] = 0,
    min_processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="M",
            help="With --max-restarts, how many processes are enough: after two attempts in a row "
            "that saved nothing there are fewer, and --mesh has a smaller dp, or fsdp. Unless "
            "given, there are always --processes.",
        ),
    ] = None,
) -> None:
    """Runs a command in several processes on this machine, which talk over loopback.

    As in: jaxpar launch --processes 2 --devices 4 -- train --mesh dp=8
    """
    if arguments[0] not in DISTRIBUTED:
        raise BadUseError(
            f"launch: {arguments[0]!r} does not run in several processes; use "
            f"{' or '.join(DISTRIBUTED)}"
        )
    from jaxpar.train.launch import launch
    from jaxpar.train.restarts import Shrinking, launch_again

    command = [sys.executable, "-m", "jaxpar.cli", *arguments]
    sizes = {"processes": processes, "devices": devices, "as_json": AS_JSON in arguments}
    if min_processes and not 1 <= min_processes <= processes * (max_restarts > 0):
        raise BadUseError(
            f"launch: --min-processes {min_processes} with --processes {processes} and "
            f"--max-restarts {max_restarts}: a run that is started again may have fewer; use "
            f"--max-restarts of 1 or more, and at most {processes}"
        )
    if not max_restarts:
        raise typer.Exit(launch(command, **sizes))
    options, shrinking = _options_of(arguments), None
    folder = _checkpoint_of(options, max_restarts)
    if min_processes:
        examples = options["batch"] // options["microbatches"]
        shrinking = Shrinking(min_processes, options["mesh"], examples)
    raise typer.Exit(
        launch_again(command, folder, restarts=max_restarts, shrinking=shrinking, **sizes)
    )


def _options_of(arguments: list[str]) -> dict[str, Any]:
    """The options of a command, by name."""
    verb = typer.main.get_group(app).commands[arguments[0]]
    return verb.make_context(arguments[0], arguments[1:], resilient_parsing=True).params


def _checkpoint_of(options: dict[str, Any], max_restarts: int) -> Path:
    """The folder in which the run of a command saves itself.

    Raises:
        BadUseError: it does not save itself.
    """
    folder = options.get("checkpoint")
    if folder is None:
        raise BadUseError(
            f"launch: --max-restarts {max_restarts} without --checkpoint: a run that is not saved "
            "cannot go on; add --checkpoint DIR to train, or leave --max-restarts out"
        )
    return folder
