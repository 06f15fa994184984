"""Saves and loads the same state with `torch.distributed.checkpoint`, each process its shards."""

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import torch  # pyright: ignore[reportMissingImports]
import torch.distributed.checkpoint as dcp  # pyright: ignore[reportMissingImports]
from torch.distributed.device_mesh import (  # pyright: ignore[reportMissingImports]
    init_device_mesh,
)
from torch.distributed.tensor import (  # pyright: ignore[reportMissingImports]
    Shard,
    distribute_tensor,
)

from benchmarks.sides.saves import DEVICES, SETTINGS, Saver, serve
from benchmarks.sides.torch_step import lead, meet
from jaxpar.model import init


def first_state() -> dict[str, torch.Tensor]:
    """Three tensors for each parameter, split along the first dim that all can share."""
    mesh = init_device_mesh("cpu", (DEVICES,))
    like = jax.eval_shape(lambda: init(SETTINGS, jax.random.key(0)))
    state = {}
    for path, leaf in jax.tree.leaves_with_path(like):
        dim = next(dim for dim, size in enumerate(leaf.shape) if size % DEVICES == 0)
        for part in ("params", "mu", "nu"):
            name = f"{part}.{jax.tree_util.keystr(path, simple=True, separator='.')}"
            state[name] = distribute_tensor(torch.randn(leaf.shape), mesh, [Shard(dim)])
    return state


def save_and_load(folder: Path) -> None:
    state = first_state()

    def save(folder: Path) -> None:
        dcp.save(state, checkpoint_id=folder)

    def save_behind(folder: Path) -> Callable[[], object]:
        return dcp.async_save(state, checkpoint_id=folder).result

    def load(folder: Path) -> None:
        dcp.load(state, checkpoint_id=folder)

    serve(Saver(save, save_behind, load), folder)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            lead("benchmarks.sides.torch_checkpoint", [], DEVICES)
        case [rank, meeting]:
            with meet(int(rank), DEVICES, meeting):
                save_and_load(Path(meeting).parent)
