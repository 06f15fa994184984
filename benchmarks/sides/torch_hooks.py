"""The training step in PyTorch's DistributedDataParallel, with a communication hook.

Query, key and value are apart here, as ours are, so that both sides compress the same matrices.
`python -m benchmarks.sides.torch_hooks HOOK bytes` prints what a process sends in a step.
"""

import sys
from collections.abc import Callable
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.distributed.algorithms.ddp_comm_hooks import (  # pyright: ignore[reportMissingImports]
    default_hooks,
    powerSGD_hook,
)
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]

from benchmarks.sides.our_step import BATCH, DEVICES, SETTINGS
from benchmarks.sides.torch_step import (
    Decoder,
    lead,
    linear,
    meet,
    over_processes,
    shifted,
    train,
)
from jaxpar.cost.communication import wire_bytes

HOOKS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "fp16": lambda: (None, default_hooks.fp16_compress_hook),
}


class Apart(nn.Module):
    """A fused projection as three, whose outputs come in the same order."""

    def __init__(self, fused: Any) -> None:
        super().__init__()
        d, d_head = SETTINGS.d_model, SETTINGS.d_head
        by_heads = fused.weight.detach().view(-1, 3, d_head, d)
        parts: list[Any] = [linear(d, d) for _ in range(3)]
        for part, own in zip(parts, by_heads.unbind(1), strict=True):
            part.weight.data.copy_(own.reshape(d, d))
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """Queries, keys and values [b, t, 3*d], head by head."""
        heads = (*x.shape[:-1], -1, SETTINGS.d_head)
        return torch.stack([part(x).view(heads) for part in self.parts], dim=-2).flatten(-3)


def power_sgd(rank: int) -> tuple[Any, Any]:
    """PowerSGD from the second step on, with all else as PyTorch has it."""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
    return state, powerSGD_hook.powerSGD_hook


class Count:
    """The wire bytes of all-reduces in float32 or less, since the last forward pass began.

    Those of losses, in float64, are none of the hook's.
    """

    def __init__(self) -> None:
        self.sent, self._all_reduce = 0.0, dist.all_reduce
        dist.all_reduce = self

    def __call__(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        """An all-reduce, counted as one round a ring."""
        if tensor.dtype != torch.float64:
            size = tensor.numel() * tensor.element_size()
            self.sent += wire_bytes("all_reduce", size, DEVICES)
        return self._all_reduce(tensor, *args, **kwargs)

    def begin(self, *_: Any) -> None:
        """Forgets what was sent before."""
        self.sent = 0.0


def hooked(name: str, count: Count | None) -> nn.Module:
    """The decoder, whose gradients the hook of this name averages."""
    model = Decoder()
    for layer in model.layers:
        layer.query_key_value = Apart(layer.query_key_value)
    # One bucket: of several, gloo's callbacks send PowerSGD's second parts in no fixed order.
    parallel = DistributedDataParallel(model, bucket_cap_mb=64)
    scheme, _, rank = name.partition("=")
    parallel.register_comm_hook(*(power_sgd(int(rank)) if rank else HOOKS[scheme]()))
    if count:
        parallel.register_forward_pre_hook(count.begin)
    return parallel


if __name__ == "__main__":
    match sys.argv[1:]:
        case [name, *what] if what in ([], ["bytes"]):
            lead("benchmarks.sides.torch_hooks", [name, *(what or ["time"])], DEVICES)
        case [name, what, rank, meeting]:
            with meet(int(rank), DEVICES, meeting):
                count = Count() if what == "bytes" else None
                tokens, labels = (x.chunk(DEVICES)[int(rank)] for x in shifted(BATCH))
                train(hooked(name, count), tokens, labels, DEVICES, over_processes)
                if count:
                    print("bytes", count.sent)
