"""The same training step by PyTorch's own pipelining, Schedule1F1B, one process for each stage."""

import os
import sys

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.distributed.pipelining import (  # pyright: ignore[reportMissingImports]
    PipelineStage,
    Schedule1F1B,
)
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from benchmarks.sides.our_step import SETTINGS, random_tokens
from benchmarks.sides.race import serve
from benchmarks.sides.torch_step import Decoder, adamw, lead, meet, over_processes, tensor


class Stage(nn.Module):
    """Some layers of the decoder; the first with the embedding, the last with the head."""

    def __init__(self, rank: int, stages: int) -> None:
        super().__init__()
        whole, each = Decoder(), SETTINGS.layers // stages
        self.embedding = whole.embedding if rank == 0 else None
        self.layers = whole.layers[rank * each : (rank + 1) * each]
        self.ends = nn.Sequential(whole.norm, whole.head) if rank == stages - 1 else None
        self.register_buffer("cos", whole.cos)
        self.register_buffer("sin", whole.sin)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens [b, t] or the stream [b, t, d] to the stream or logits [b, t, v]."""
        if self.embedding is not None:
            x = self.embedding(x)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return x if self.ends is None else self.ends(x)


def mean_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train_rank(rank: int, stages: int, batch: int, microbatches: int) -> None:
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // stages))
    model = Stage(rank, stages)
    stage = PipelineStage(model, rank, stages, torch.device("cpu"))
    schedule = Schedule1F1B(stage, microbatches, loss_fn=mean_loss)
    optimizer = adamw(model)
    tokens = tensor(random_tokens(batch)).long()
    inputs = (tokens[:, :-1].contiguous(),) if rank == 0 else ()
    targets = {"target": tokens[:, 1:].contiguous()} if rank == stages - 1 else {}

    def step() -> float:
        optimizer.zero_grad()
        losses: list[Tensor] = []  # of the microbatches, on the last stage
        schedule.step(*inputs, losses=losses, **targets)
        optimizer.step()
        dist.barrier()  # the first stage answers for all
        return sum(loss.item() for loss in losses) / microbatches

    serve(step, over_processes)


if __name__ == "__main__":
    match sys.argv[1:]:
        case [stages, batch, microbatches]:
            lead("benchmarks.sides.torch_pipeline", [stages, batch, microbatches], int(stages))
        case [stages, batch, microbatches, rank, meeting]:
            with meet(int(rank), int(stages), meeting):
                train_rank(int(rank), int(stages), int(batch), int(microbatches))
