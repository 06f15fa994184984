"""A run of the decoder over many devices: what is needed to begin, and what it gave."""

import math
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.files import write_atomically
from jaxpar.inspector.program import COUNT_FLAG
from jaxpar.inspector.report import Report
from jaxpar.layout import Layout
from jaxpar.mesh import make_mesh
from jaxpar.model import Settings
from jaxpar.parallel.disk import DiskStore
from jaxpar.parallel.offload import HostStore, Store, Transfers
from jaxpar.train.checkpoint import OPTIMIZER, Checkpoints, Keeping, parts_of
from jaxpar.train.cluster import Place, join
from jaxpar.train.distillation import read_teacher
from jaxpar.train.documents import END, has_ends
from jaxpar.train.launch import FOLLOWS, SCRATCH
from jaxpar.train.loop import Trained, train
from jaxpar.train.machine import check_memory
from jaxpar.train.manifest import TOKENIZER
from jaxpar.train.profile import Profile
from jaxpar.train.ramp import Ramp
from jaxpar.train.recipe import Recipe
from jaxpar.train.restarts import RESTARTED
from jaxpar.train.sent import Sent, sent_over_axes
from jaxpar.train.setup import published_average, set_up, validation_loss
from jaxpar.train.speed import seconds_at_peak
from jaxpar.train.spikes import MOST_IN_A_ROW
from jaxpar.train.termination import Terminated, termination
from jaxpar.train.text import (
    Text,
    batches,
    check_same,
    hold_out,
    read_data,
    read_library,
    spread_batches,
    unit_of,
)
from jaxpar.train.tokenizer import ENDS, Tokenizer, read_tokenizer
from jaxpar.train.tracking import Recorder, Tracking
from jaxpar.train.validation import MOST_BATCHES, Validated, Validating, Validation
from jaxpar.train.watchdog import Watchdog
from jaxpar.train.weights import Weights


class StepResult(NamedTuple):
    """What a step has told.

    Attributes:
        loss: the mean loss of the batch.
        gradient_norm: the norm of the gradients before clipping.
        seconds: how long the step took.
        largest_load: of the busiest expert, over the mean load; None: there are no experts.
        dropped: the share of the choices of experts that found no row; None: there is no capacity.
        validated: what a validation after it has told; None: there was none.
        skipped: how many steps in a row were skipped, with this one; 0: it was taken.
    """

    loss: float
    gradient_norm: float
    seconds: float
    largest_load: float | None = None
    dropped: float | None = None
    validated: Validated | None = None
    skipped: int = 0


@dataclass(frozen=True)
class Run:
    """A run that is compiled and may begin.

    Attributes:
        report: what each device sends and holds in one step.
        parameters: the number of parameters of the model.
        trained: how many of them are trained.
        tokens: the number of tokens that a step predicts, over all devices; of a ramp, the last.
        steps: an endless iterator; each step is computed when it is requested.
        sent: what a device sends over each group of axes, with every branch and by the schedule.
        moved: the bytes that an offloaded state moves in a step; None without offload.
        folder: where an offloaded state is kept, if it is kept on disk.
        round_steps: how many local steps a step here stands for, where devices take such.
        checkpoints: those that it resumes and saves; None: it saves none.
        validation: what is done on held-out text; None: none is held out.
        unit: what the text consists of, bytes or tokens.
        watchdog: what ends the process if it is stuck; None: nothing does.
        seconds_at_peak: how long a step would take at the peak of all devices; None: their peak is
            unknown.
        recorder: what tells a tracker each step; None: nothing does, here.
        profile: what traces some steps; None: nothing does, here.
        ramp: the batches of the first steps, if these are smaller.
        notes: what a user should know of the weights that it begins with.
    """

    report: Report
    parameters: int
    trained: int
    tokens: int
    steps: Iterator[Trained]
    sent: tuple[Sent, ...] = ()
    moved: Transfers | None = None
    folder: tempfile.TemporaryDirectory | None = None
    round_steps: int | None = None
    checkpoints: Checkpoints | None = None
    validation: Validation | None = None
    unit: str = "bytes"
    watchdog: Watchdog | None = None
    seconds_at_peak: float | None = None
    recorder: Recorder | None = None
    profile: Profile | None = None
    ramp: Ramp | None = None
    notes: tuple[str, ...] = ()

    @property
    def first_step(self) -> int:
        """How many steps were taken before this run began, by the one that it resumes."""
        return self.checkpoints.step if self.checkpoints else 0

    def predicted(self, count: int) -> float:
        """How many tokens the first `count` steps, or rounds, of this run predict."""
        if not self.ramp:
            return count * self.tokens
        first, each = self.first_step, self.round_steps or 1
        examples = self.ramp.examples(first + count * each) - self.ramp.examples(first)
        return examples * self.tokens / (self.ramp.sizes[-1] * each)

    def tokens_per_second(self, count: int, seconds: float, first: float) -> float:
        """Predicted tokens in a second, over all devices, of `count` steps that took `seconds`.

        The first step, which took `first` of them, is left out where there are others: on GPUs it
        also loads the program and its libraries.
        """
        if count == 1:
            return self.predicted(1) / seconds
        return (self.predicted(count) - self.predicted(1)) / (seconds - first)

    def mfu(self, tokens_per_second: float) -> float | None:
        """Model FLOPs utilization at a speed; None where no peak is known."""
        if self.seconds_at_peak is None:
            return None
        return tokens_per_second / self.tokens * self.seconds_at_peak

    def share(self, step: int) -> float:
        """The part of a full batch that the step, or the round, has that ends with `step`."""
        if not self.ramp:
            return 1.0
        each = self.round_steps or 1
        examples = self.ramp.examples(step) - self.ramp.examples(step - each)
        return examples / (self.ramp.sizes[-1] * each)

    def proceed(self, steps: int) -> Iterator[Trained]:
        """The steps of this run until there are so many in all, saved and validated as was asked.

        Raises:
            Terminated: the process was asked to end, and may do so now.
            ValueError: a step could not be saved, or too many in a row were skipped.
        """
        each = self.round_steps or 1
        with termination() as is_asked:
            for number in range(self.first_step + each, steps + 1, each):
                if self.profile:
                    self.profile.before_step()
                trained = next(self.steps)
                if self.profile:
                    self.profile.after_step(trained.params)
                if self.watchdog:
                    self.watchdog.completed(trained.seconds)
                ends = is_asked(number)
                with self.watchdog.paused() if self.watchdog else nullcontext():
                    trained = self._validated_and_saved(number, trained, number == steps, ends)
                yield trained
                if ends:
                    raise Terminated
                if trained.skipped >= MOST_IN_A_ROW:
                    first = number - trained.skipped + 1
                    raise ValueError(
                        f"train: steps {first} to {number} were all skipped, so this is "
                        "no spike: the gradients stay not finite, or large; use a lower "
                        "--learning-rate, a --warmup, or a larger --skip-spikes"
                    )

    def close(self) -> None:
        """Waits for what is being saved, and removes what a run leaves behind.

        Raises:
            ValueError: it could not be saved.
        """
        if self.watchdog:
            self.watchdog.close()
        if self.profile:
            self.profile.close()
        if self.recorder:
            self.recorder.close()
        try:
            if self.checkpoints:
                self.checkpoints.close()
        finally:
            if self.folder:
                self.folder.cleanup()

    def _validated_and_saved(
        self, number: int, trained: Trained, last: bool, ends: bool
    ) -> Trained:
        """Validates after a step, records and saves it, where this is asked for; it may take long.

        A step that is saved is recorded: nobody takes it again. `ends` says that the process was
        asked to end, which leaves no time to validate.
        """
        if self.validation and not ends:
            found = self.validation.after(number, trained.params, trained.state, last=last)
            trained = trained._replace(validated=found)
        if self.recorder:
            self.recorder.after(number, trained)
        if self.checkpoints:
            self.checkpoints.after(number, trained.params, trained.state, last=last or ends)
        return trained


def start(
    settings: Settings,
    recipe: Recipe,
    place: Place | None,
    *,
    data: Path | None,
    seed: int,
    timeout_seconds: int,
    watchdog_seconds: int | None = None,
    keeping: Keeping | None = None,
    validating: Validating | None = None,
    tokenizer: Path | None = None,
    tracking: Tracking | None = None,
    profile: Path | None = None,
    document_masks: bool = False,
    weights: Weights | None = None,
) -> Run:
    """Connects with the other processes, if there are any, and begins a run over all devices.

    `weights` are those that it begins with, and `settings` those of their decoder; without them,
    the first parameters are random. With `document_masks`, attention does not cross from one
    document of the text to the next. A watchdog ends the process when no step is completed for
    `watchdog_seconds`; unless given, there is one, which takes its limit from the steps, where the
    launcher starts again what ends.

    Raises:
        ValueError: the recipe does not fit, the text or the tokenizer is unreadable, others do not
            connect, or there is no checkpoint to resume.
    """
    path = tokenizer or (weights.tokenizer if weights else None)
    read = read_tokenizer(path) if path else None
    if weights:
        weights.check_tokenizer(read)
    elif read:
        settings = replace(settings, vocabulary=read.vocabulary)
    if document_masks:
        settings = replace(settings, document_end=_document_end(read))
    recipe.check(settings)
    text = read_data(data) if data else read_library()
    if document_masks:
        _check_documents(text, data)
    join(place, timeout_seconds)
    simulate_unless_chosen(recipe.layout.devices, place)
    mesh = _mesh(recipe.layout)
    if jax.default_backend() == "cpu":
        here = 1 if FOLLOWS in os.environ else jax.local_device_count() / jax.device_count()
        check_memory(settings, recipe, here, fixed=weights is not None)
    check_same(text, (read.data if read else b"") + (weights.mark.encode() if weights else b""))
    name = f"text: {data}" if data else "text"
    run = begin(
        settings, recipe, mesh, text,
        seed=seed, name=name, keeping=keeping, validating=validating, tokenizer=read,
        profile=profile, weights=weights,
    )  # fmt: skip
    recorder = _recorder(run, recipe, tracking) if tracking else None
    return replace(run, watchdog=_watchdog(watchdog_seconds), recorder=recorder)


def _document_end(tokenizer: Tokenizer | None) -> int:
    """The token that ends a document."""
    if not tokenizer:
        return END[0]
    if not tokenizer.end:
        raise ValueError(
            f"train: --document-masks with --tokenizer {tokenizer.path}: it has no token for the "
            f"end of a document; add one of {', '.join(ENDS)} to it, or leave --document-masks out"
        )
    return tokenizer.end[0]


def _check_documents(text: Text, data: Path | None) -> None:
    if not has_ends(text):
        raise ValueError(
            f"train: --document-masks: the text {data or 'of the library'} has no documents, whose "
            "ends are known only in parquet files, JSON Lines and datasets; give such a text with "
            "--data, or leave --document-masks out"
        )


def begin(
    settings: Settings,
    recipe: Recipe,
    mesh: Mesh,
    text: Text,
    *,
    seed: int,
    name: str = "text",
    keeping: Keeping | None = None,
    validating: Validating | None = None,
    tokenizer: Tokenizer | None = None,
    profile: Path | None = None,
    weights: Weights | None = None,
) -> Run:
    """Makes or restores the parameters, and compiles and inspects the step.

    `seed` chooses the first parameters, unless there are `weights` to begin with, and the order of
    the examples. An error about the text begins with `name`. `keeping` says where checkpoints are,
    and `validating` how much of the text is held out of training. `tokenizer` makes tokens of it,
    and without one its bytes are tokens. `profile` is the folder for a trace of some steps.

    Raises:
        ValueError: the model cannot be split in this way, the text does not fill a batch, or there
            is no checkpoint to resume.
    """
    recipe.check(settings)
    layout, t, rounds = recipe.layout, settings.sequence, recipe.sync_every or 1
    batch = recipe.batch * rounds
    texts = _in_tokens(text, validating.fraction if validating else 0.0, tokenizer, name)
    sharding = NamedSharding(mesh, P(layout.batch_axes))
    mark = tokenizer.mark if tokenizer else None
    began = weights.mark if weights else None
    checkpoints = (
        Checkpoints(keeping, settings, recipe, texts.training, seed, mark, began)
        if keeping
        else None
    )
    if keeping and tokenizer and not jax.process_index():
        _keep_tokenizer(keeping.folder, tokenizer)
    consumed = checkpoints.examples if checkpoints else 0
    first = checkpoints.step if checkpoints else 0
    sizes = (
        recipe.examples(step + rounds) - recipe.examples(step) for step in count(first, rounds)
    )
    examples = batches(
        texts.training, sharding,
        batch=batch, sequence=t, seed=seed, consumed=consumed, name=name, sizes=sizes,
    )  # fmt: skip
    held_out = _held_out_batches(texts.held_out, recipe, sharding, t, validating, name)
    smaller = recipe.ramp.sizes_from(first)[:-1] if recipe.ramp else ()
    shape, *shapes = (
        jax.ShapeDtypeStruct((size * rounds, t + 1), jnp.int32, sharding=sharding)
        for size in (recipe.batch, *smaller)
    )
    folder, store = _store(layout)
    unread = None if first else weights  # a run that is resumed has its own
    teacher = None
    if recipe.distillation:
        teacher = read_teacher(recipe.distillation.folder, settings, tokenizer, layout)
    made = set_up(settings, recipe, mesh, shape, seed, store, shapes, unread, teacher)
    params, state = made.params, made.state
    if checkpoints:
        params, state = checkpoints.restore(params, state)
    validation = None
    if validating:
        loss = validation_loss(settings, recipe, mesh, params, held_out[0])
        averaged = _averaged(settings, recipe, mesh) if recipe.average else None
        validation = Validation(validating.every, loss, held_out, texts.token_bytes, averaged)
    return Run(
        report=made.report,
        parameters=settings.parameters,
        trained=settings.adapter_parameters or settings.parameters,
        tokens=batch * t,
        steps=train(made.step, params, state, examples),
        sent=sent_over_axes(made.report, recipe, settings, teacher and teacher.settings),
        moved=made.moved,
        folder=folder,
        round_steps=recipe.sync_every,
        checkpoints=checkpoints,
        validation=validation,
        unit=unit_of(texts.training),
        seconds_at_peak=seconds_at_peak(settings, recipe, mesh.devices.flat[0].device_kind),
        profile=_profile(profile, made.text),
        ramp=recipe.ramp,
        notes=unread.notes if unread else (),
    )


def _profile(folder: Path | None, text: Callable[[], str | None]) -> Profile | None:
    """What traces the steps that the compiled program of this text takes, in process 0."""
    return Profile(folder, text() or "") if folder and not jax.process_index() else None


def _keep_tokenizer(folder: Path, tokenizer: Tokenizer) -> None:
    """Puts a copy beside the checkpoints, for whoever uses the model."""
    try:
        write_atomically(folder / TOKENIZER, tokenizer.data, public=True)
    except OSError as error:
        raise ValueError(
            f"train: --checkpoint {folder}: the tokenizer cannot be copied into it: "
            f"{error.strerror}; give a folder that can be written"
        ) from None


def _averaged(settings: Settings, recipe: Recipe, mesh: Mesh) -> Callable[[Any], Any]:
    """The function from the state of a run to its averaged parameters."""
    published = published_average(settings, recipe, mesh)
    return lambda state: published(parts_of(recipe, None, state)[OPTIMIZER])


class _Texts(NamedTuple):
    """What a run is trained on, and what is held out; a token has `token_bytes` of this."""

    training: Text
    held_out: Text
    token_bytes: float


def _in_tokens(text: Text, fraction: float, tokenizer: Tokenizer | None, name: str) -> _Texts:
    """The two parts of a text, of which the second is this fraction, in tokens."""
    training, held_out = hold_out(text, fraction)
    if not tokenizer:
        return _Texts(training, held_out, 1.0)
    tokens = tokenizer.encode(held_out, f"{name}, held out")
    token_bytes = len(held_out) / max(1, len(tokens))
    return _Texts(tokenizer.encode(training, name), tokens, token_bytes)


def _held_out_batches(
    text: Text,
    recipe: Recipe,
    sharding: NamedSharding,
    sequence: int,
    validating: Validating | None,
    name: str,
) -> list[Array]:
    """The batches of a validation, if there is one."""
    if not validating:
        return []
    name = f"{name}, held out by --validation {validating.fraction}"
    return spread_batches(
        text, sharding, batch=recipe.batch, sequence=sequence, most=MOST_BATCHES, name=name
    )


def _store(layout: Layout) -> tuple[tempfile.TemporaryDirectory | None, Store | None]:
    """Where an offloaded state is kept, with its folder if that is on disk."""
    if layout.offload == "none":
        return None, None
    folder = _folder() if layout.store == "disk" else None
    return folder, DiskStore(Path(folder.name)) if folder else HostStore()


def results(run: Run | None, steps: Sequence[StepResult]) -> dict[str, Any]:
    """The results of a run so far, as data for JSON; memory and collectives are per device."""
    pace = speed(run, steps) if run else None
    return {
        "losses": [_finite(step.loss) for step in steps],
        "gradient_norms": [_finite(step.gradient_norm) for step in steps],
        "largest_loads": [
            _finite(step.largest_load) for step in steps if step.largest_load is not None
        ],
        "dropped": [
            _finite(step.dropped or 0.0) for step in steps if step.largest_load is not None
        ],
        "skipped_steps": [
            number for number, step in enumerate(steps, run.first_step + 1) if step.skipped
        ]
        if run
        else [],
        "validation": [
            {name: _finite(value) for name, value in step.validated._asdict().items()}
            for step in steps
            if step.validated
        ],
        "step_seconds": [step.seconds for step in steps],
        "tokens_per_second": pace,
        "mfu": run and pace and run.mfu(pace),
        "memory": run and _memory(run),
        "bytes_by_axis": [one._asdict() for one in (run.sent if run else ())],
        "collectives": [asdict(one) for one in (run.report.collectives if run else ())],
        "moved": run and run.moved and run.moved._asdict(),
        "profile": [one._asdict() for one in (run.profile.spent if run and run.profile else ())],
        "profile_parts": [
            one._asdict() for one in (run.profile.parts if run and run.profile else ())
        ],
        "checkpoint": run and run.checkpoints and run.checkpoints.results(),
    }


def speed(run: Run, steps: Sequence[StepResult]) -> float | None:
    """Predicted tokens in a second, over all devices; None before the first step."""
    if not steps:
        return None
    seconds = [step.seconds for step in steps]
    return run.tokens_per_second(len(steps), sum(seconds), seconds[0])


def _memory(run: Run) -> dict[str, int] | None:
    memory = run.report.memory
    return memory and {
        "arguments_bytes": memory.arguments_bytes,
        "temp_bytes": memory.temp_bytes,
    }


def _recorder(run: Run, recipe: Recipe, tracking: Tracking) -> Recorder:
    """Makes the record of a run that is about to begin."""
    about = {
        "parameters": run.parameters,
        "trained_parameters": run.trained,
        "tokens": run.tokens,
        "unit": run.unit,
        "round_steps": run.round_steps,
        "updates": str(recipe.optimizer),
        "checkpoint": run.checkpoints and str(run.checkpoints.keeping.folder),
    }
    attempt = {
        "after_step": run.first_step,
        "began": datetime.now().astimezone().isoformat(timespec="seconds"),
        "mesh": recipe.layout.mesh,
        "zero": recipe.layout.zero,
        "devices": recipe.layout.devices,
        "device": jax.devices()[0].device_kind,
        "processes": jax.process_count(),
        "memory": _memory(run),
        "bytes_by_axis": [one._asdict() for one in run.sent],
    }
    return Recorder(
        tracking,
        tracking.begin(about, attempt),
        tokens=run.tokens,
        share=run.share,
        rate=recipe.optimizer.rate,
        seconds_at_peak=run.seconds_at_peak,
    )


def _finite(number: float) -> float | None:
    """The number, or None where JSON has no word for it."""
    return number if math.isfinite(number) else None


def _watchdog(seconds: int | None) -> Watchdog | None:
    if seconds is None and RESTARTED not in os.environ:
        return None
    return Watchdog(f"process {jax.process_index()} of {jax.process_count()}", seconds)


def simulate_unless_chosen(devices: int, place: Place | None = None) -> None:
    """Simulates this process's part of `devices`, unless the environment sets a number."""
    processes = place.count if place else 1
    chosen = "JAX_NUM_CPU_DEVICES" in os.environ or COUNT_FLAG in os.environ.get("XLA_FLAGS", "")
    if processes and not chosen:
        with suppress(RuntimeError):  # JAX has started
            jax.config.update("jax_num_cpu_devices", max(1, devices // processes))


def _mesh(layout: Layout) -> Mesh:
    found, processes = jax.device_count(), jax.process_count()
    if layout.devices > found or (processes > 1 and layout.devices < found):
        others = (
            "start others: --processes times --devices of launch, before its verb"
            if FOLLOWS in os.environ
            else "simulate others: JAX_PLATFORMS=cpu, with their number for a process in "
            "JAX_NUM_CPU_DEVICES"
        )
        raise ValueError(
            f"train: --mesh {layout.mesh} needs {layout.devices} devices; there are {found} "
            f"({jax.default_backend()}, processes: {processes}); use {found} in all, or {others}"
        )
    return make_mesh(layout.mesh_sizes)


def _folder() -> tempfile.TemporaryDirectory:
    """An empty folder in the launcher's or in the current one, as /tmp is often in memory."""
    try:
        here = Path(os.environ.get(SCRATCH, "."))
        here.mkdir(exist_ok=True)
        return tempfile.TemporaryDirectory(prefix="jaxpar-offload-", dir=here)
    except OSError as error:
        raise ValueError(
            f"train: --offload disk needs a folder in {Path.cwd()}: {error.strerror}; start in a "
            "folder that can be written"
        ) from None
