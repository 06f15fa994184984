"""Saves a training run while it goes on, and resumes it, bit for bit on the same devices.

What is stored: the parameters; the optimizer's states, with its count of steps and, in 16 bits, the
weights in float32; the loss scale; what `--compress` keeps on each device, or `--sync-every` for
the outer step; biases of experts, which are parameters; the step, and how many examples it has
consumed. There are no random keys to store: the seed gives the first parameters and the order of
the examples, and nothing else is random.

Every array is stored whole, whatever the mesh, so that another mesh, stage of ZeRO, schedule or
number of processes can resume it. Orbax writes the arrays, each process its own shards, and reads
them; `jaxpar.train.manifest` says which checkpoints are whole.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import weakref
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import multihost_utils
from jaxtyping import PyTree

from jaxpar.collectives.leaves import STACKED
from jaxpar.model import Settings
from jaxpar.parallel.pipeline import layer_order
from jaxpar.train.manifest import (
    ARRAYS,
    DAMAGED,
    DamagedError,
    folder_of,
    keep_newest,
    read_manifest,
    remove_half_written,
    set_aside,
    steps_in,
    strangers_in,
    write_manifest,
)
from jaxpar.train.recipe import Recipe
from jaxpar.train.text import Text, unit_of

if TYPE_CHECKING:
    import orbax.checkpoint

try:
    import fcntl
except ImportError:  # Windows: no locks
    fcntl = None

FORMAT = 1  # of what is stored, and under which names
OPTIMIZER, ERRORS = "optimizer", "errors"
SHOWN = 200  # characters of an error of orbax, which may be a page long


@dataclass(frozen=True)
class Keeping:
    """What a run is asked to keep.

    Attributes:
        folder: where its checkpoints are; it may not hold anything else.
        every: how many steps there are from one checkpoint to the next.
        keep: how many are kept, the newest ones.
        resume: whether to go on from the newest that is whole.
    """

    folder: Path
    every: int = 100
    keep: int = 3
    resume: bool = False


def make_keeping(
    recipe: Recipe, folder: Path | None, every: int | None, keep: int | None, resume: bool
) -> Keeping | None:
    """What the options of `jaxpar train` ask for; None: nothing is kept.

    Raises:
        ValueError: an option is given without a folder, or devices do not meet where it saves.
    """
    if folder is None:
        given = [("--every", every), ("--keep", keep), ("--resume", resume or None)]
        for option in (option for option, value in given if value is not None):
            raise ValueError(
                f"train: {option} without --checkpoint: it says how a run is saved; add "
                f"--checkpoint DIR, or leave {option} out"
            )
        return None
    keeping = Keeping(folder, every or Keeping.every, keep or Keeping.keep, resume)
    rounds = recipe.sync_every or 1
    if keeping.every % rounds:
        raise ValueError(
            f"train: --every {keeping.every} with --sync-every {rounds}: a run is saved where "
            f"devices average; use a multiple of {rounds}"
        )
    return keeping


class Checkpoints:
    """The checkpoints of one run: the one that it resumes, and those that it saves.

    All processes make one, and call its methods in the same order. Saving goes on behind the steps:
    a call returns when the arrays are copied to the host.

    Attributes:
        step: the step after which this run begins.
        examples: how many examples were consumed until then.
        saved: the steps whose checkpoints this run has completed.
        notes: what a user should know: which checkpoints are damaged, and what begins anew.

    Raises:
        ValueError: the folder cannot be used, has a run that was not to be resumed, or another one,
            or has none that could be.
    """

    def __init__(
        self,
        keeping: Keeping,
        settings: Settings,
        recipe: Recipe,
        text: Text,
        seed: int,
        tokenizer: str | None = None,
        weights: str | None = None,
    ) -> None:
        self.keeping = replace(keeping, folder=keeping.folder.absolute())
        self.saved: list[int] = []
        self._recipe = recipe
        self._about = _about(settings, recipe, text, seed, tokenizer, weights)
        self._unlock: Callable[[], object] = lambda: None
        found = _of_process_0(self._find)
        if not self.keeping.folder.is_dir():
            raise ValueError(
                f"train: --checkpoint {self.keeping.folder}: process 0 has this folder, and "
                f"process {jax.process_index()} does not see it; give one on a file system that "
                "all share"
            )
        self.step: int = found["step"]
        self.notes: list[str] = found["notes"]
        self._before: dict[str, Any] = found["about"]
        self.examples: int = self._before.get("examples", 0)
        self._orbax: orbax.checkpoint.AsyncCheckpointer | None = None
        self._thread = ThreadPoolExecutor(1)
        self._pending: tuple[int, Future[None]] | None = None

    def restore(self, params: PyTree[Array], state: Any) -> tuple[PyTree[Array], Any]:
        """The parameters and the state of the step that the run resumes, or else these.

        Those of a checkpoint get the shapes and shardings of these, whose memory is freed.
        """
        if not self.step:
            return params, state
        parts = parts_of(self._recipe, params, state)
        kept = parts.pop(ERRORS, None)
        there, here = self._before["devices"], self._about["devices"]
        same = there == here
        if same and kept is not None:
            parts[ERRORS] = kept
        elif there["compress"] or here["compress"]:
            self.notes.append(
                "what --compress keeps of gradients begins anew, since it belongs to the devices "
                f"and the scheme of its run: {_in_words(there)} before, {_in_words(here)} now"
            )
        like = {name: _type_of(leaf) for name, leaf in _by_name(parts).items()}
        jax.tree.map(lambda leaf: leaf.delete(), parts)
        ocp, orbax = self._started()
        path = folder_of(self.keeping.folder, self.step) / ARRAYS
        restore_args = ocp.checkpoint_utils.construct_restore_args(like)
        arguments = ocp.args.PyTreeRestore(like, restore_args, partial_restore=True)
        stored = orbax.restore(path, args=arguments)
        parts = jax.tree.structure(parts).unflatten(stored[name] for name in like)
        if there["layers"] != here["layers"]:
            parts = self._in_order(parts, there["layers"], here["layers"])
        return _state_of(self._recipe, {ERRORS: kept} | parts, state)

    def after(self, step: int, params: PyTree[Array], state: Any, *, last: bool) -> None:
        """Saves this step if it is one to be saved, as the last one is.

        Raises:
            ValueError: this or an earlier step could not be saved.
        """
        if self._pending and self._pending[1].done():
            self._wait()
        if step % self.keeping.every and not last:
            return
        self._wait()
        tree = _by_name(parts_of(self._recipe, params, state))
        consumed = self.examples + self._recipe.examples(step) - self._recipe.examples(self.step)
        with self._explained(step):
            ocp, orbax = self._started()
            path = folder_of(self.keeping.folder, step) / ARRAYS
            orbax.save(path, args=ocp.args.PyTreeSave(tree))
        about = self._about | {"examples": consumed}
        self._pending = step, self._thread.submit(self._commit, orbax, step, about)
        if last:
            self._wait()
            if jax.process_count() > 1:  # none may end before process 0 has written the manifest
                multihost_utils.sync_global_devices("the last checkpoint is complete")

    def close(self) -> None:
        """Waits for what is being saved, and lets another run use the folder.

        Raises:
            ValueError: it could not be saved.
        """
        try:
            self._wait()
        finally:
            self._thread.shutdown()
            if self._orbax:
                self._orbax.close()
            self._unlock()

    def results(self) -> dict[str, Any]:
        """What was restored and saved, as data for JSON."""
        return {
            "folder": str(self.keeping.folder),
            "restored_step": self.step or None,
            "saved_steps": self.saved,
            "notes": self.notes,
        }

    def _find(self) -> dict[str, Any]:
        """The checkpoint to resume; the folder is ready for further ones."""
        folder, resume = self.keeping.folder, self.keeping.resume
        where = f"train: --checkpoint {folder}"
        try:
            if others := strangers_in(folder):
                more = f" and {len(others) - 1} more" if len(others) > 1 else ""
                raise ValueError(
                    f"{where} holds {others[0]}{more}, which no training run has written; give an "
                    "empty folder, or a new one"
                )
            steps = steps_in(folder)
            if steps and not resume:
                raise ValueError(
                    f"{where} holds a run, saved after step {steps[-1]}; add --resume to go on "
                    "with it, or give another folder"
                )
            if resume and not steps:
                raise ValueError(
                    f"{where}: there is no checkpoint to resume; check the folder, or leave "
                    "--resume out to begin a run"
                )
            folder.mkdir(parents=True, exist_ok=True)
            self._lock(where)
            found = self._newest_whole(where, steps) if steps else _nothing()
            remove_half_written(folder)
            for step in (step for step in steps if step > found["step"]):
                set_aside(folder, step)
        except OSError as error:
            raise ValueError(
                f"{where}: {error.strerror}; give a folder that can be written"
            ) from None
        return found

    def _newest_whole(self, where: str, steps: list[int]) -> dict[str, Any]:
        damaged: dict[int, DamagedError] = {}
        for step in reversed(steps):
            try:
                about = read_manifest(self.keeping.folder, step)
            except DamagedError as error:
                damaged[step] = error
                continue
            alike = self._alike_until(about)
            run = dict(self._about["run"])
            if step <= alike:
                run["optimizer"] = str(replace(self._recipe.optimizer, steps=about["steps"]))
            _check_same_run(where, about, self._about | {"run": run}, alike)
            notes = [
                f"the checkpoint of step {other} is damaged, and now in {DAMAGED}step-{other:08}; "
                f"step {step} is taken: {error}"
                for other, error in damaged.items()
            ]
            return {"step": step, "about": about, "notes": notes}
        reasons = "; ".join(f"step {step}: {error}" for step, error in damaged.items())
        raise ValueError(
            f"{where}: every checkpoint is damaged ({reasons}); restore a copy of the folder, or "
            "begin a run in another one"
        )

    def _alike_until(self, about: dict[str, Any]) -> int:
        """Up to which step this run has the rates of one with other steps; 0: there is no other.

        Source: Hu et al. 2024 (MiniCPM), section 4.3
        """
        optimizer, steps = self._recipe.optimizer, about.get("steps")
        if steps in (None, 0, optimizer.steps):
            return 0
        return min(replace(optimizer, steps=steps).constant_until, optimizer.constant_until)

    def _lock(self, where: str) -> None:
        """Keeps other runs out of the folder until this process ends."""
        if not fcntl:
            return
        lock = os.open(self.keeping.folder / ".lock", os.O_WRONLY | os.O_CREAT, 0o666)
        self._unlock = weakref.finalize(self, os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return  # a file system without locks
            raise ValueError(
                f"{where} is in use by another run; wait for its end, or give another folder"
            ) from None

    def _in_order(self, parts: Any, before: list[int], now: list[int]) -> Any:
        """The parts with the layers in the order of this run's schedule."""
        places = np.argsort(before)[np.array(now)]

        def of_leaf(path: Any, leaf: Array) -> Array:
            if not any(getattr(key, "key", None) == STACKED for key in path):
                return leaf
            # The optimizer's states of rounds have a dim for devices before that of layers.
            dim = int(path[0].key == OPTIMIZER and self._recipe.sync_every is not None)
            take = jax.jit(partial(jnp.take, axis=dim), out_shardings=leaf.sharding)
            return take(leaf, places)

        return jax.tree_util.tree_map_with_path(of_leaf, parts)

    def _commit(self, orbax: Any, step: int, about: dict[str, Any]) -> None:
        """Completes a checkpoint: in a thread of its own, while the steps go on."""
        orbax.wait_until_finished()
        if jax.process_index() == 0:
            write_manifest(self.keeping.folder, step, about)
            keep_newest(self.keeping.folder, self.keeping.keep)

    def _wait(self) -> None:
        """Waits until no checkpoint is being saved."""
        if self._pending is None:
            return
        (step, pending), self._pending = self._pending, None
        with self._explained(step):
            pending.result()
        self.saved.append(step)

    @contextmanager
    def _explained(self, step: int) -> Iterator[None]:
        """Turns what goes wrong in saving into one line."""
        try:
            yield
        except Exception as error:  # of orbax, of TensorStore, of the system, of other processes
            steps = [one for one in steps_in(self.keeping.folder) if one != step]
            newest = f"the newest checkpoint is that of step {steps[-1]}" if steps else "none is"
            raise ValueError(
                f"train: --checkpoint {self.keeping.folder}: step {step} could not be saved: "
                f"{_reason(error)}; {newest}; make room or repair it, and go on with --resume"
            ) from error

    def _started(self) -> tuple[Any, Any]:
        """Orbax, which takes a second to import, and what saves with it."""
        import orbax.checkpoint as ocp

        logging.getLogger("absl").setLevel(logging.CRITICAL)  # we say what goes wrong
        if self._orbax is None:
            # Compression makes a float32 state 8% smaller, for three times the processor time.
            handler = ocp.PyTreeCheckpointHandler(use_compression=False)
            self._orbax = ocp.AsyncCheckpointer(handler)
        return ocp, self._orbax


def parts_of(recipe: Recipe, params: PyTree[Array], state: Any) -> dict[str, Any]:
    """The parameters and the parts of a state, by what they are; arrays are global ones."""
    names = _names(recipe)
    parts = {"params": params} | dict(zip(names, state if len(names) > 1 else [state], strict=True))
    if recipe.layout.offload != "none":
        parts[OPTIMIZER] = parts[OPTIMIZER].load()
    return parts


def _state_of(recipe: Recipe, parts: dict[str, Any], state: Any) -> tuple[Any, Any]:
    """The parameters, and a state of these parts in the form of `state`."""
    if recipe.layout.offload != "none":
        offloaded, _ = state
        offloaded.save(parts[OPTIMIZER])
        parts = parts | {OPTIMIZER: offloaded}
    names = _names(recipe)
    several = tuple(parts[name] for name in names)
    return parts["params"], several if len(names) > 1 else parts[OPTIMIZER]


def _names(recipe: Recipe) -> list[str]:
    """The parts of a state, which is a tuple if there are several."""
    errors = [ERRORS] if recipe.compression else []
    if recipe.sync_every:
        return [OPTIMIZER, "outer", *errors]
    if recipe.compression:
        return [OPTIMIZER, *errors]
    if recipe.precision == "fp16" or recipe.layout.offload != "none":
        return [OPTIMIZER, "loss_scale"]
    return [OPTIMIZER]


def _about(
    settings: Settings,
    recipe: Recipe,
    text: Text,
    seed: int,
    tokenizer: str | None,
    weights: str | None,
) -> dict[str, Any]:
    """What a run is: `model` and `run` must be equal to resume it, `devices` may differ."""
    layout, rounds = recipe.layout, recipe.sync_every
    order = layer_order(recipe.table, settings.layers) if recipe.table else range(settings.layers)
    return {
        "model": asdict(settings),
        "run": {
            "format": FORMAT,
            "seed": seed,
            "text": f"of {len(text)} {unit_of(text)} (CRC-32 {zlib.crc32(text.data):08x})",
            "tokenizer": tokenizer or "none",
            "began with weights": weights,
            "optimizer": str(recipe.optimizer),
            "average": recipe.average,
            "distilled from": recipe.distillation and str(recipe.distillation),
            "skipped above": recipe.skip_spikes and f"{recipe.skip_spikes:g} times the mean norm",
            "precision": recipe.precision,
            "rounds": rounds and f"of {rounds} steps on dp={layout.dp}, then {recipe.outer}",
        },
        "steps": recipe.optimizer.steps,
        "devices": {
            "mesh": layout.mesh,
            "zero": layout.zero,
            "layers": [int(layer) for layer in order],
            "compress": recipe.compression and asdict(recipe.compression),
        },
    }


def _check_same_run(where: str, there: dict[str, Any], here: dict[str, Any], alike: int) -> None:
    """Refuses to resume another run; what differs is named, with both values.

    `alike` is the last step from which a run could go on to other --steps; 0: there is none.
    """
    there = there | {"model": asdict(Settings()) | there["model"]}  # of before a setting existed
    differ = [
        f"{name} {old} there, {here[part].get(name)} here"
        for part in ("model", "run")
        for name, old in (dict.fromkeys(here[part]) | there[part]).items()
        if old != here[part].get(name)
    ]
    if differ:
        hint = (
            f"; other --steps can follow a checkpoint of step {alike} or before, where the rate "
            "has not fallen: give a copy of the folder without later ones"
        )
        raise ValueError(
            f"{where} holds another run: {'; '.join(differ)}; use the same options and text, or "
            f"another folder{hint if alike else ''}"
        )


def _nothing() -> dict[str, Any]:
    return {"step": 0, "about": {}, "notes": []}


def _in_words(devices: dict[str, Any]) -> str:
    scheme = devices["compress"]["scheme"] if devices["compress"] else "none"
    return f"{scheme} on {devices['mesh']} with stage {devices['zero']}"


def _of_process_0(find: Callable[[], Any]) -> Any:
    """What process 0 finds, on all processes; if it raises a ValueError, all raise it."""
    if jax.process_count() == 1:
        return find()
    answer: dict[str, Any] = {}
    if jax.process_index() == 0:
        try:
            answer = {"found": find()}
        except ValueError as error:
            answer = {"error": str(error)}
    sent = np.frombuffer(json.dumps(answer).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(sent.size)))
    received = multihost_utils.broadcast_one_to_all(np.resize(sent, size))
    answer = json.loads(np.asarray(received).tobytes())
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer["found"]


def _by_name(parts: PyTree[Array]) -> dict[str, Array]:
    """Every array by its path, as in "optimizer.0.mu.layers.norm"."""
    pairs = jax.tree.leaves_with_path(parts)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in pairs}


def _type_of(leaf: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def _reason(error: Exception) -> str:
    """Why a save failed, in a few words."""
    text = str(error)
    known = (os.strerror(code) for code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EACCES))
    return next((words for words in known if words in text), text.split("\n")[0][:SHOWN])
