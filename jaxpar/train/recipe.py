"""What the trainer is asked to run: a layout, a batch, a precision and a schedule, all checked."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from jaxpar.checks import check_one_of
from jaxpar.layout import AXES, CONTEXT_KINDS, REMAT_KINDS, ZERO_STAGES, Layout
from jaxpar.mesh import divide, parse_mesh
from jaxpar.model import Settings, Split, check_blocks, check_split
from jaxpar.model.attention import KINDS as ATTENTIONS
from jaxpar.model.attention import RINGS
from jaxpar.parallel.pipeline import layer_order
from jaxpar.parallel.precision import POLICIES
from jaxpar.schedules import Table, make_table
from jaxpar.schedules.files import read_table
from jaxpar.train.compression import Compression, parse_compression
from jaxpar.train.optimizer import ADAMS, DECAYS, RATES, Optimization, make_optimization
from jaxpar.train.ramp import Ramp, parse_ramp
from jaxpar.train.rounds import OUTERS

GATHERS = ("use", "step")
DEFAULT_SCHEDULE = "1f1b"
DEFAULT_OUTER = "average"
# The words for `--offload`: each says what waits between steps, and where.
OFFLOADS = {
    "none": ("none", "host"),
    "optimizer": ("optimizer", "host"),
    "host": ("optimizer", "host"),
    "disk": ("optimizer", "disk"),
}


@dataclass(frozen=True)
class Distillation:
    """How a trained decoder teaches.

    Attributes:
        folder: where its run was saved.
        weight: of the distillation loss; the rest is that of the cross-entropy.
        temperature: that divides the logits of both.
    """

    folder: Path
    weight: float = 0.5
    temperature: float = 2.0

    def __str__(self) -> str:
        """All but the place of the folder, as it is stored."""
        return f"{self.folder.name}, {self.weight:g} at temperature {self.temperature:g}"


@dataclass(frozen=True)
class Recipe:
    """A run that the trainer can do, as `make_recipe` makes it.

    Attributes:
        layout: how the run is spread over devices.
        batch: examples in a step, over all devices.
        precision: the dtype of what is sent and multiplied: "fp32", "bf16" or "fp16"; the
            optimizer's states are fp32.
        schedule: over pp, the name of a schedule, or a CSV file with a table.
        table: that schedule for this number of microbatches; None: there is no pipeline.
        gather: at stage 3, whether layers are gathered for each "use", or all once a "step".
        optimizer: what updates the parameters, and at which rate.
        clip: the norm to which the gradients are clipped; None: they are not.
        attention: without cp, one of `ATTENTIONS`; None: what is faster for the sequence.
        skip_spikes: a step is skipped whose gradient norm is not finite, or above so many times the
            running mean of those before; None: all are taken.
        sync_every: how many local steps the devices of dp take before they average; None: they
            average the gradients of every step.
        outer: after these steps, what `jaxpar.train.rounds.OUTERS` names.
        compression: how gradients are sent over dp, or after local steps what these have changed;
            None: as it is.
        average: the decay of an exponential average of the parameters; None: there is none.
        ramp: the batches of the first steps, if these are smaller.
        distillation: by which teacher the decoder is taught, and how; None: by none.
    """

    layout: Layout
    batch: int
    precision: str = "fp32"
    schedule: str = DEFAULT_SCHEDULE
    table: Table | None = None
    gather: str = "use"
    optimizer: Optimization = field(default_factory=Optimization)
    clip: float | None = None
    attention: str | None = None
    skip_spikes: float | None = None
    sync_every: int | None = None
    outer: str = DEFAULT_OUTER
    compression: Compression | None = None
    average: float | None = None
    ramp: Ramp | None = None
    distillation: Distillation | None = None

    def examples(self, steps: int) -> int:
        """The examples in the first `steps` batches."""
        return self.ramp.examples(steps) if self.ramp else steps * self.batch

    @property
    def gathers_layers(self) -> bool:
        """Whether every layer is gathered where it is used."""
        return self.layout.zero == 3 and self.gather == "use"

    @property
    def keeps_inputs(self) -> bool:
        """Whether a stage of a pipeline keeps only its input, and computes the rest again."""
        return self.layout.remat == "segments"

    @property
    def microbatches(self) -> int:
        """How many microbatches a device takes one after the other; over pp, the schedule's."""
        return self.layout.microbatches(self.batch)

    @property
    def split(self) -> Split:
        """How the devices of tp and cp split each layer."""
        return Split.of(self.layout, self.attention)

    def check_steps(self, steps: int) -> None:
        """Raises a ValueError if so many steps are not whole rounds of local steps."""
        each = self.sync_every or 1
        if steps % each:
            near = [n * each for n in (steps // each, steps // each + 1) if n]
            raise ValueError(
                f"train: --steps {steps} with --sync-every {each}: devices average at the end of "
                f"each round; use --steps {' or '.join(map(str, near))}"
            )

    def check(self, settings: Settings) -> None:
        """Raises a ValueError if a decoder cannot be split as this recipe says."""
        check_split(settings, self.layout)
        if settings.experts:
            self._check_experts()
        if settings.mup_base and self.optimizer.name not in ADAMS:
            raise ValueError(
                f"train: --mup-base {settings.mup_base} with --optimizer {self.optimizer.name}: "
                "how rates change with the width is that of Adam here; use adamw or adam8bit, or "
                "leave --mup-base out"
            )
        if settings.adapter_rank or settings.base_bits:
            self._check_adapters(settings)
        if self.table:
            layer_order(self.table, settings.layers)

    def _check_adapters(self, settings: Settings) -> None:
        """Checks what adapters cannot be combined with."""
        reasons = {
            "compress": self.compression and "all gradients are cut into parts that are compressed",
            "sync-every": self.sync_every and "all parameters move in local steps",
            "offload": self.layout.offload != "none" and "the optimizer's state is small already",
            "average": self.average and "all parameters are averaged",
        }
        for option, reason in reasons.items():
            if reason:
                raise ValueError(
                    f"train: --adapter with --{option}: with that option, {reason}; leave one of "
                    "the two out"
                )
        if not settings.base_bits:
            return
        if not settings.adapter_rank:
            raise ValueError(
                f"train: --base-bits {settings.base_bits} without --adapter: numbers in few bits "
                "cannot be trained; give an adapter, such as --adapter lora:16"
            )
        if self.layout.remat == "none":
            raise ValueError(
                f"train: --base-bits {settings.base_bits} with --remat none: all matrices would be "
                "kept as numbers for the backward pass; use another remat, such as products"
            )
        check_blocks(f"train: --base-bits {settings.base_bits}", settings, self.layout.tp)

    def _check_experts(self) -> None:
        """Checks what a decoder with experts cannot be combined with."""
        if self.precision == "fp16":
            raise ValueError(
                "train: --experts with --precision fp16: what balances the experts goes beside the "
                "loss, and is not scaled as it is; use bf16 or fp32"
            )
        if self.compression or self.sync_every:
            option = "compress" if self.compression else "sync-every"
            raise ValueError(
                f"train: --experts with --{option}: the load of experts is that of the tokens of "
                f"all devices in each step, which these do not tell each other then; leave "
                f"--{option} out"
            )


def make_recipe(
    mesh: str = "dp=8",
    *,
    batch: int = 16,
    zero: int | None = None,
    precision: str = "fp32",
    remat: str = "products",
    microbatches: int = 1,
    offload: str | None = None,
    sequence_parallel: bool = False,
    schedule: str | None = None,
    chunks: int | None = None,
    gather: str | None = None,
    optimizer: str = "adamw",
    clip: float | None = None,
    context: str | None = None,
    attention: str | None = None,
    sync_every: int | None = None,
    outer: str | None = None,
    compress: str | None = None,
    learning_rate: float | None = None,
    warmup: int = 0,
    decay: str = "none",
    weight_decay: float | None = None,
    skip_spikes: float | None = None,
    average: float | None = None,
    batch_ramp: str | None = None,
    distill: Path | None = None,
    distill_weight: float | None = None,
    temperature: float | None = None,
    steps: int = 0,
) -> Recipe:
    """A recipe from the options of `jaxpar train`.

    Args:
        mesh: the axes and their sizes: any of pp, dp, fsdp, ep, cp and tp.
        batch: examples in a step, over all devices.
        zero: the stage of ZeRO; None: 3 over an axis fsdp, 0 without one.
        precision: "fp32", "bf16" or "fp16".
        remat: one of `REMAT_KINDS`.
        microbatches: how many equal parts of its examples a device takes one after the other.
        offload: one of `OFFLOADS`; None: nothing waits outside of the devices.
        sequence_parallel: whether the devices of tp also split the positions, as in `Layout`.
        schedule: over pp, the name of a schedule, or a CSV file with a table; None: 1f1b.
        chunks: the stages on each device of pp, for a schedule that can have several; None: as many
            as the schedule has.
        gather: at stage 3, one of `GATHERS`; None: "use".
        optimizer: one of `RATES`.
        clip: the norm to which the gradients are clipped; None: they are not.
        context: over cp, one of `CONTEXT_KINDS`; None: zigzag, and gather over pp as well.
        attention: without cp, one of `ATTENTIONS`; None: what is faster for the sequence.
        sync_every: how many local steps the devices of dp take before they average.
        outer: what they do then, one of `OUTERS`; None: they average.
        compress: how gradients are sent over dp, or after local steps what these have changed, as
            `parse_compression` reads it.
        learning_rate: the highest; None: that of `RATES`.
        warmup: over so many steps the learning rate rises to the highest.
        decay: how it falls afterwards, one of `DECAYS`.
        weight_decay: of AdamW, also in 8 bits; None: `WEIGHT_DECAY`.
        skip_spikes: how many times the running mean a gradient norm may be; None: any norm may be.
        average: the decay of an exponential average of the parameters; None: there is none.
        batch_ramp: how the batch grows to `batch`, as `parse_ramp` reads it; None: it does not.
        distill: the folder of a run whose decoder teaches this one; None: none does.
        distill_weight: of the distillation loss, from 0 to 1; None: that of `Distillation`.
        temperature: that divides the logits in it; None: that of `Distillation`.
        steps: of a run whose learning rate falls.

    Raises:
        ValueError: the trainer cannot run this; the message says why, and what it can run.
    """
    sizes = parse_mesh(mesh)
    if others := [axis for axis in sizes if axis not in AXES]:
        raise ValueError(
            f"train: --mesh {mesh} has axes {', '.join(others)}; training splits the batch over "
            "dp, fsdp and ep, experts over ep, positions over cp, each layer over tp, and the "
            "layers over pp; use these"
        )
    stage = (3 if "fsdp" in sizes else 0) if zero is None else zero
    offload = offload or "none"
    for name, value, allowed in (
        ("zero", stage, ZERO_STAGES),
        ("precision", precision, tuple(POLICIES)),
        ("remat", remat, tuple(REMAT_KINDS)),
        ("offload", offload, tuple(OFFLOADS)),
        ("gather", gather or "use", GATHERS),
        ("optimizer", optimizer, tuple(RATES)),
        ("decay", decay, DECAYS),
        ("context", context or "zigzag", tuple(CONTEXT_KINDS)),
        ("attention", attention or ATTENTIONS[0], ATTENTIONS),
    ):
        check_one_of("train", f"--{name}", value, allowed)
    if microbatches < 1:
        raise ValueError(f"train: --microbatches is {microbatches}; use 1 or more")
    if clip is not None and not clip > 0:
        raise ValueError(f"train: --clip is {clip}; use a norm above 0, or leave it out")
    if skip_spikes is not None and not skip_spikes > 1:
        raise ValueError(
            f"train: --skip-spikes is {skip_spikes}; use a factor above 1, such as 3, or leave it "
            "out"
        )
    if average is not None and not 0 < average < 1:
        raise ValueError(
            f"train: --average is {average}; use a decay between 0 and 1, such as 0.999, or leave "
            "it out"
        )
    _check_layers(mesh, sizes, sequence_parallel, schedule, chunks)
    _check_states(mesh, sizes, stage, remat, gather)
    _check_attention(mesh, sizes, context, attention)
    kept, store = OFFLOADS[offload]
    layout = Layout(
        **sizes,
        zero=stage,
        remat=remat,
        sequence_parallel=sequence_parallel,
        context=context or default_context(sizes),
        offload=kept,
        store=store,
    )
    local = divide("train", "b", batch, layout.batch_axes, layout.batch_parts)
    if local % microbatches:
        raise ValueError(
            f"train: --microbatches {microbatches} and {local} examples on a device; microbatches "
            f"have equal sizes; use a number that divides {local}, or another --batch"
        )
    name = schedule or DEFAULT_SCHEDULE
    table = _make_table(name, layout.pp, microbatches, chunks) if layout.pp > 1 else None
    layout = replace(layout, microbatch=local // microbatches, chunks=table.chunks if table else 1)
    updates = make_optimization(optimizer, learning_rate, warmup, decay, weight_decay, steps)
    recipe = Recipe(
        layout,
        batch,
        precision,
        name,
        table,
        gather or "use",
        updates,
        clip,
        attention,
        skip_spikes,
        average=average,
    )
    if batch_ramp is not None:
        parts = layout.batch_parts * microbatches
        ramp = parse_ramp(batch_ramp, batch=batch, parts=parts, rounds=sync_every or 1)
        recipe = replace(recipe, ramp=ramp)
    if skip_spikes is not None and layout.offload != "none":
        raise ValueError(
            f"train: --skip-spikes {skip_spikes} with --offload: a state outside of the devices is "
            "updated leaf by leaf, and none of them knows the others; leave one of the two out"
        )
    recipe = _with_less_communication(recipe, sync_every, outer, compress)
    return replace(recipe, distillation=_distillation(recipe, distill, distill_weight, temperature))


def _distillation(
    recipe: Recipe, folder: Path | None, weight: float | None, temperature: float | None
) -> Distillation | None:
    """How a teacher teaches, if there is one."""
    if folder is None:
        given = (("--distill-weight", weight), ("--temperature", temperature))
        for option in (option for option, value in given if value is not None):
            raise ValueError(
                f"train: {option} without --distill: it says how a teacher teaches; add --distill "
                f"DIR, or leave {option} out"
            )
        return None
    made = Distillation(folder)
    made = replace(made, weight=made.weight if weight is None else weight)
    made = replace(made, temperature=made.temperature if temperature is None else temperature)
    if not 0 < made.weight <= 1:
        raise ValueError(
            f"train: --distill-weight is {made.weight}; it is the part of the loss that the "
            "teacher has; use a number above 0, at most 1"
        )
    if not made.temperature > 0:
        raise ValueError(f"train: --temperature is {made.temperature}; use a number above 0")
    if recipe.table:
        raise ValueError(
            f"train: --distill with --mesh {recipe.layout.mesh}: the last stage of a pipeline has "
            "no place for the logits of a teacher, whose layers are on other stages; leave axis pp "
            "out"
        )
    if recipe.sync_every:
        raise ValueError(
            f"train: --distill with --sync-every {recipe.sync_every}: a round takes the batches of "
            "several steps at once, beside which it has no place for a teacher; leave one of the "
            "two out"
        )
    return made


def _check_layers(
    mesh: str,
    sizes: dict[str, int],
    sequence_parallel: bool,
    schedule: str | None,
    chunks: int | None,
) -> None:
    """Checks the options that need axis pp or tp."""
    for option, value in (("schedule", schedule), ("chunks", chunks)):
        if value and "pp" not in sizes:
            raise ValueError(
                f"train: --{option} {value} with --mesh {mesh}: it is for devices that hold "
                "different layers; use --mesh pp=N or pp=N,dp=M"
            )
    if sequence_parallel and "tp" not in sizes:
        raise ValueError(
            f"train: --sequence-parallel with --mesh {mesh}: positions are split over the devices "
            "that split a layer; use --mesh tp=N or dp=N,tp=M"
        )


def _check_states(
    mesh: str, sizes: dict[str, int], stage: int, remat: str, gather: str | None
) -> None:
    """Checks the stage of ZeRO, and what goes with it, against the axes that shard the states."""
    if stage == 0 and "fsdp" in sizes:
        raise ValueError(
            f"train: --zero 0 with --mesh {mesh}: the devices of axis fsdp shard the states of "
            "training, and stage 0 shards nothing; use --zero 1, 2 or 3, or axis dp"
        )
    axes = ("fsdp" if "fsdp" in sizes else "dp", "ep", "cp")
    if stage and all(sizes.get(axis, 1) == 1 for axis in axes):
        raise ValueError(
            f"train: stage {stage} of ZeRO with --mesh {mesh}: axis {axes[0]} has one device, and "
            "no other to shard with; use more devices, or --zero 0 on dp"
        )
    if stage == 2 and sizes.get("pp", 1) > 1:
        raise ValueError(
            f"train: --zero 2 with --mesh {mesh}: a stage of a pipeline adds up the gradients of "
            "its layers until the last microbatch, so there is no earlier moment to scatter them; "
            "use --zero 1, which holds as much, or --zero 3"
        )
    if gather and stage != 3:
        raise ValueError(
            f"train: --gather {gather} with --zero {stage}: only at stage 3 are parameters sharded "
            "between steps; use --zero 3, or leave --gather out"
        )
    if stage == 3 and remat == "none" and gather != "step":
        raise ValueError(
            "train: --remat none with --zero 3: every layer's parameters, once gathered, would be "
            "kept for the gradient; use --remat products, full, selective or segments, --gather "
            "step, or --zero 2"
        )


def default_context(sizes: Mapping[str, int]) -> str:
    """How positions attend to those of other devices, unless it is said.

    Beside a pipeline there is no ring. In one tick, some stages run forward and others backward,
    and each would make hops of its own. But XLA names the pairs of a permute for all devices at
    once, not for groups: on CPUs the next permute of one stage meets the next one of another, and
    as a backward pass has more of them, later ones deliver other arrays, without an error. An
    all-gather and an all-to-all name groups, in which the devices of a stage meet alone.
    """
    both = all(sizes.get(axis, 1) > 1 for axis in ("pp", "cp"))
    return "gather" if both else "zigzag"


def _check_attention(
    mesh: str, sizes: dict[str, int], context: str | None, attention: str | None
) -> None:
    """Checks the options that say how positions attend to each other."""
    split = sizes.get("cp", 1) > 1
    if context in RINGS and sizes.get("pp", 1) > 1:
        raise ValueError(
            f"train: --context {context} with --mesh {mesh}: every device must take part in each "
            "hop of a ring, and in a pipeline some stages do other work then; use --context gather "
            "or ulysses, or leave axis pp out"
        )
    if context and not split:
        raise ValueError(
            f"train: --context {context} with --mesh {mesh}: it says how devices attend to each "
            "other's positions; use --mesh cp=N, or leave --context out"
        )
    if attention and split:
        raise ValueError(
            f"train: --attention {attention} with --mesh {mesh}: over cp, --context says how "
            "attention is computed; use that, or leave axis cp out"
        )


def _with_less_communication(
    recipe: Recipe, sync_every: int | None, outer: str | None, compress: str | None
) -> Recipe:
    """The recipe with local steps, or compression, or both, if it can have these."""
    if outer and sync_every is None:
        raise ValueError(
            f"train: --outer {outer} without --sync-every: it says what devices do after their "
            "local steps; add --sync-every N, or leave --outer out"
        )
    if sync_every is None and compress is None:
        return recipe
    given = f"--sync-every {sync_every}" if sync_every is not None else f"--compress {compress}"
    compression = parse_compression(compress) if compress else None
    if sync_every is not None and sync_every < 1:
        raise ValueError(f"train: {given}; use 1 or more")
    check_one_of("train", "--outer", outer or DEFAULT_OUTER, tuple(OUTERS))
    layout = recipe.layout
    if layout.dp == 1:
        raise ValueError(
            f"train: {given} with --mesh {layout.mesh}: only the devices of axis dp send less, and "
            "there is one; use --mesh dp=N, or dp=N with other axes"
        )
    if layout.zero and layout.state_axis == "dp":
        raise ValueError(
            f"train: {given} with --zero {layout.zero} over dp: its devices own different shards, "
            "and must send parameters in each step; use --zero 0, or shard over fsdp"
        )
    if layout.offload != "none":
        raise ValueError(
            f"train: {given} with --offload: a state outside of the devices is updated leaf by "
            "leaf, after all gradients; leave --offload out"
        )
    if recipe.precision == "fp16":
        raise ValueError(
            f"train: {given} with --precision fp16: a gradient that overflows must stop the step "
            "of all devices, and would stay in the errors of compression; use bf16 or fp32"
        )
    if sync_every:
        _check_rounds(recipe, given)
    return replace(
        recipe, sync_every=sync_every, outer=outer or DEFAULT_OUTER, compression=compression
    )


def _check_rounds(recipe: Recipe, given: str) -> None:
    """Checks what local steps cannot be combined with."""
    if recipe.layout.zero in (1, 2):
        raise ValueError(
            f"train: {given} with --zero {recipe.layout.zero}: a local step updates the parameters "
            "that a device holds, and this stage updates a shard of them; use --zero 3 over fsdp, "
            "or --zero 0"
        )
    if recipe.precision != "fp32":
        raise ValueError(
            f"train: {given} with --precision {recipe.precision}: a round averages the parameters, "
            "not the float32 weights in each device's optimizer state; use fp32"
        )
    if recipe.clip is not None:
        raise ValueError(
            f"train: {given} with --clip {recipe.clip}: the norm is that of the mean gradient of "
            "all devices, which local steps do not know; leave --clip out"
        )
    if recipe.skip_spikes is not None:
        raise ValueError(
            f"train: {given} with --skip-spikes {recipe.skip_spikes}: a device that skips a local "
            "step alone does not know the gradients of the others; leave --skip-spikes out"
        )
    if recipe.average is not None:
        raise ValueError(
            f"train: {given} with --average {recipe.average}: between two averages over devices, "
            "each has other parameters; leave --average out"
        )


def _make_table(schedule: str, stages: int, microbatches: int, chunks: int | None) -> Table:
    """A schedule by its name, or from a CSV file that is for these stages and microbatches."""
    if not schedule.endswith(".csv"):
        return make_table(schedule, stages, microbatches, chunks)
    try:
        table = read_table(Path(schedule))
    except ValueError as error:
        raise ValueError(f"train: --schedule {error}") from None
    if (table.devices, table.microbatches) != (stages, microbatches):
        raise ValueError(
            f"train: --schedule {schedule} is for {table.devices} devices and "
            f"{table.microbatches} microbatches; the mesh has pp={stages}, with --microbatches "
            f"{microbatches}; make them equal"
        )
    if chunks not in (None, table.chunks):
        raise ValueError(
            f"train: --schedule {schedule} has {table.chunks} chunks on each device, not "
            f"{chunks}; leave --chunks out"
        )
    return table
