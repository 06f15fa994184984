"""What a run needs of this machine's memory at least, where its devices are simulated here."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from jaxpar.model import Settings
from jaxpar.train.recipe import Recipe

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
FLOAT_BYTES = 4
OPTIMIZER_BYTES = {"adamw": 8, "adam8bit": 2, "sgd": 0}
UNITS = ((10**12, "TB"), (10**9, "GB"), (1, "bytes"))


def memory_bytes() -> int | None:
    """The memory of this machine, or of the container that this process is in, if it is known."""
    found = []
    with suppress(AttributeError, ValueError, OSError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(ValueError, OSError):
        found.append(int(CGROUP_LIMIT.read_text(encoding="ascii")))
    return min(found, default=None)


def least_bytes(settings: Settings, recipe: Recipe) -> float:
    """What all devices hold at least: the states of training, and the logits of a step.

    What the layers keep depends on the compiler, and is left out.
    """
    layout = recipe.layout
    on_disk = layout.offload != "none" and layout.store == "disk"
    optimizer = OPTIMIZER_BYTES[recipe.optimizer.name] + (FLOAT_BYTES if recipe.average else 0)
    states = (  # the bytes of each for a parameter, and the stage of ZeRO that shards it
        (0 if on_disk else optimizer, 1),
        (FLOAT_BYTES if recipe.precision == "fp32" else FLOAT_BYTES / 2, 2),
        (FLOAT_BYTES, 3),
    )
    frozen = ((settings.base_bits / 8 if settings.base_bits else states[1][0], 3),)
    copies = layout.devices / (layout.pp * layout.tp)
    in_experts = settings.architecture.expert_parameters
    others = settings.architecture.parameters - in_experts
    adapters = settings.adapter_parameters
    parts = (  # how many parameters, their states, how many copies there are, what shards a copy
        (others, frozen if adapters else states, copies, layout.state_shards),
        (adapters, states, copies, layout.state_shards),
        (in_experts, states, copies / layout.ep, layout.expert_shards),
    )
    held = sum(
        count * times * each / (shards if layout.zero >= stage else 1)
        for count, of_each, times, shards in parts
        for each, stage in of_each
    )
    logits = recipe.batch / recipe.microbatches * settings.sequence * settings.vocabulary
    return held + logits * FLOAT_BYTES


def check_memory(
    settings: Settings, recipe: Recipe, devices_here: float, *, fixed: bool = False
) -> None:
    """Refuses a run that cannot fit into this machine, before anything of it is made.

    Args:
        settings: the decoder.
        recipe: how it is trained.
        devices_here: the fraction of the devices that this machine simulates.
        fixed: whether the decoder is that of given weights, and no other one would do.

    Raises:
        ValueError: it needs more memory than there is; the message names what fits.
    """
    memory = memory_bytes()
    if memory is None or least_bytes(settings, recipe) * devices_here <= memory:
        return

    def fits(smaller: Settings) -> bool:
        return least_bytes(smaller, recipe) * devices_here <= memory

    need = _in_words(least_bytes(settings, recipe) * devices_here)
    smaller = "use a smaller model, or a smaller --batch" if fixed else _what_fits(settings, fits)
    raise ValueError(
        f"train: needs at least {need}, this machine has {_in_words(memory)}; {smaller}"
    )


def _what_fits(settings: Settings, fits: Callable[[Settings], bool]) -> str:
    """Names the largest size that fits, of the activations or else of the stack of layers."""
    step = 2 * settings.heads  # positions turn pairs of a head's numbers
    width = _largest(
        settings.d_model // step, lambda n: fits(replace(settings, d_model=n * step, d_ff=None))
    )
    if width:
        return f"largest that fits: --d-model {width * step}"
    layers = _largest(settings.layers, lambda n: fits(replace(settings, layers=n)))
    if layers:
        return f"largest that fits: --layers {layers}"
    return "use a smaller --d-model, fewer --layers, and a smaller --batch"


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number up to `most` that fits, where all smaller ones fit too; 0 if none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _in_words(count: float) -> str:
    size, unit = next((size, unit) for size, unit in UNITS if count >= size)
    return f"{count / size:,.0f} {unit}"
