"""PyTorch's distributed checkpoints of the same decoder with AdamW, by FSDP2 over 8 processes.

Every line of stdin is answered with the seconds of a save, of a load, and for which a save in the
background blocks, and with the bytes of a checkpoint.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch.distributed.checkpoint.state_dict import (  # pyright: ignore[reportMissingImports]
    get_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import (  # pyright: ignore[reportMissingImports]
    load,
)
from torch.distributed.checkpoint.state_dict_saver import (  # pyright: ignore[reportMissingImports]
    async_save,
    save,
)
from torch.distributed.device_mesh import (  # pyright: ignore[reportMissingImports]
    init_device_mesh,
)

from benchmarks.sides.our_step import BATCH, DEVICES
from benchmarks.sides.torch_step import Decoder, fully_sharded, lead, meet, shifted


def answer_rank(rank: int, folder: Path) -> None:
    """This process of the mesh; the first one answers for all."""
    torch.set_num_threads(1)
    model = fully_sharded(Decoder(), init_device_mesh("cpu", (DEVICES,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    tokens, labels = (x.chunk(DEVICES)[rank] for x in shifted(BATCH))
    model(tokens, labels).backward()
    optimizer.step()

    def states() -> dict:
        parameters, moments = get_state_dict(model, optimizer)
        return {"model": parameters, "optimizer": moments}

    def restore(here: Path) -> None:
        found = states()
        load(found, checkpoint_id=here)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=found["model"],
            optim_state_dict=found["optimizer"],
        )

    def answer(number: int) -> list[float]:
        here, pending = folder / f"{number}", []

        def save_behind() -> None:
            pending.append(async_save(states(), checkpoint_id=folder / f"{number}-behind"))

        saved = seconds(lambda: save(states(), checkpoint_id=here))
        loaded = seconds(lambda: restore(here))
        blocked = seconds(save_behind)
        pending[0].result()
        return [saved, loaded, blocked, sum(path.stat().st_size for path in here.iterdir())]

    for number, _ in enumerate(sys.stdin):
        numbers = answer(number)
        if rank == 0:
            print(*numbers, flush=True)


def seconds(call: Callable[[], object]) -> float:
    """The seconds until all processes are done."""
    dist.barrier()
    start = time.perf_counter()
    call()
    dist.barrier()
    return time.perf_counter() - start


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            with tempfile.TemporaryDirectory(dir=".") as folder:
                lead("benchmarks.sides.torch_checkpoint", [folder], DEVICES)
        case [folder, rank, meeting]:
            with meet(int(rank), DEVICES, meeting):
                answer_rank(int(rank), Path(folder))
