"""The training step of `torch_step` with a zig-zag ring over gloo, a process for each part.

PyTorch's own `context_parallel` does not run on CPUs. This ring does as ours: a process computes
two half blocks in a round, keys and values make n - 1 hops in both passes, and so do their
gradients. It sends while it computes.
"""

import sys
from typing import Any

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch import Tensor  # pyright: ignore[reportMissingImports]
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]

from benchmarks.sides.torch_step import Decoder, lead, meet, over_processes, shifted, train

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Arrival:
    """What the previous process sends while this one sends to the next."""

    def __init__(self, sent: Tensor) -> None:
        rank, n = dist.get_rank(), dist.get_world_size()
        self._sent, self._arrived = sent, torch.empty_like(sent)
        to_next = dist.P2POp(dist.isend, sent, (rank + 1) % n)
        from_previous = dist.P2POp(dist.irecv, self._arrived, (rank - 1) % n)
        self._requests = dist.batch_isend_irecv([to_next, from_previous])

    def wait(self) -> Tensor:
        """The array that has arrived."""
        for request in self._requests:
            request.wait()
        return self._arrived


class Ring(torch.autograd.Function):
    """Causal attention of positions in a zigzag: [b, a, t, h], chunks i and 2n-1-i."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """In each round the keys and values that arrived are sent on, while they are used."""
        rank, n, half = dist.get_rank(), dist.get_world_size(), q.shape[2] // 2
        own = torch.stack([k, v])
        arrival = Arrival(own)
        o, lse = FORWARD(q, k, v, 0.0, True)
        for r in range(1, n):
            block = arrival.wait()
            arrival = Arrival(block) if r < n - 1 else arrival
            if rank >= r:  # of a process before this one: its earlier chunk, for all queries
                part = FORWARD(q, *block[:, :, :, :half], 0.0, False)
                o, lse = merge(o, lse, *part)
            else:  # of one after it: both chunks, for the later queries
                part = FORWARD(q[:, :, half:], *block, 0.0, False)
                late = merge(o[:, :, half:], lse[:, :, half:], *part)
                o = torch.cat([o[:, :, :half], late[0]], dim=2)
                lse = torch.cat([lse[:, :, :half], late[1]], dim=2)
        ctx.save_for_backward(q, own, o, lse)
        return o

    @staticmethod
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The gradients of a block set out when the next process has used it, and end at home."""
        q, own, o, lse = ctx.saved_tensors
        rank, n, half = dist.get_rank(), dist.get_world_size(), q.shape[2] // 2
        arrival, gradients = Arrival(own), None
        dq, *of_own = BACKWARD(do, q, *own, o, lse, 0.0, True)
        for r in range(1, n):
            block = arrival.wait()
            arrival = Arrival(block) if r < n - 1 else arrival
            found = torch.zeros_like(block)
            if rank >= r:
                early = block[:, :, :, :half]
                more, *of_keys = BACKWARD(do, q, *early, o, lse, 0.0, False)
                dq = dq + more
                found[:, :, :, :half] = torch.stack(of_keys)
            else:
                late_do, late_q, *of_late = (x[:, :, half:] for x in (do, q, o, lse))
                more, *of_keys = BACKWARD(late_do, late_q, *block, *of_late, 0.0, False)
                dq[:, :, half:] += more
                found += torch.stack(of_keys)
            gradients = Arrival(found if gradients is None else found + gradients.wait())
        dk, dv = torch.stack(of_own) + (0 if gradients is None else gradients.wait())
        return dq, dk, dv


def merge(o: Tensor, lse: Tensor, more: Tensor, more_lse: Tensor) -> tuple[Tensor, Tensor]:
    """The result for the keys of both parts, and its log-sum-exp."""
    both = torch.logaddexp(lse, more_lse)
    weights = (torch.exp(x - both)[..., None] for x in (lse, more_lse))
    return sum(x * weight for x, weight in zip((o, more), weights, strict=True)), both


def train_rank(rank: int, n: int, sequence: int) -> None:
    """This process of the ring, which has two of 2n chunks of one sequence."""
    chunks = torch.arange(sequence).chunk(2 * n)
    places = torch.cat([chunks[rank], chunks[2 * n - 1 - rank]])
    tokens, labels = (x[:, places] for x in shifted(1, sequence))  # shifted first, then split
    # The angles of positions are buffers, and each process has its own.
    decoder = Decoder(places.tolist(), Ring.apply)
    model = DistributedDataParallel(decoder, broadcast_buffers=False)
    train(model, tokens, labels, n, over_processes)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [n, sequence]:
            lead("benchmarks.sides.torch_ring", [n, sequence], int(n))
        case [n, sequence, rank, meeting]:
            with meet(int(rank), int(n), meeting):
                train_rank(int(rank), int(n), int(sequence))
