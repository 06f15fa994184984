"""The same training step in PyTorch: alone, or in several processes by its own parallelism.

Eager PyTorch as its users write it: fused projections, scaled_dot_product_attention, fused AdamW.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.distributed.device_mesh import (  # pyright: ignore[reportMissingImports]
    init_device_mesh,
)
from torch.distributed.fsdp import fully_shard  # pyright: ignore[reportMissingImports]
from torch.distributed.tensor import (  # pyright: ignore[reportMissingImports]
    DTensor,
    Replicate,
    Shard,
)
from torch.distributed.tensor.parallel import (  # pyright: ignore[reportMissingImports]
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional  # pyright: ignore[reportMissingImports]
from torch.nn.parallel import DistributedDataParallel  # pyright: ignore[reportMissingImports]

from benchmarks.sides.race import serve
from jaxpar.model import Settings

SETTINGS = Settings()
BATCH = 16


def linear(i: int, o: int) -> nn.Linear:
    return nn.Linear(i, o, bias=False)


class Layer(nn.Module):
    """RMSNorm and attention with rotary positions, RMSNorm and SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        d, f = SETTINGS.d_model, SETTINGS.d_hidden
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(d, eps=1e-6) for _ in range(2))
        self.query_key_value, self.output = linear(d, 3 * d), linear(d, d)
        self.gate, self.up, self.down = linear(d, f), linear(d, f), linear(f, d)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The stream [b, t, d] after this layer."""
        b, t, _ = x.shape
        heads = (b, t, 3, -1, SETTINGS.d_head)  # of this process
        projected = self.query_key_value(self.attention_norm(x)).view(heads)
        q, k, v = projected.permute(2, 0, 3, 1, 4)  # each [b, a, t, h]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        gathered = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.output(gathered.transpose(1, 2).reshape(b, t, -1))
        y = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """The decoder that `Settings()` describes."""

    def __init__(self) -> None:
        super().__init__()
        d = SETTINGS.d_model
        self.embedding = nn.Embedding(SETTINGS.vocabulary, d)
        self.layers = nn.ModuleList(Layer() for _ in range(SETTINGS.layers))
        self.norm, self.head = nn.RMSNorm(d, eps=1e-6), linear(d, SETTINGS.vocabulary)
        half = SETTINGS.d_head // 2
        angles = torch.arange(SETTINGS.sequence)[:, None] / 10_000 ** (torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: Tensor) -> Tensor:
        """The mean cross-entropy of tokens [b, t+1]."""
        x = self.embedding(tokens[:, :-1])
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def train(processes: int, wrap: Callable[[Decoder], nn.Module], parts: int = 1) -> None:
    """Steps of AdamW on random tokens, one process's part of them."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    model = wrap(Decoder())
    # A fused update needs parameters that are split over processes in a group of their own.
    split, whole = (
        [p for p in model.parameters() if isinstance(p, DTensor) == s] for s in (True, False)
    )
    groups = [{"params": group} for group in (split, whole) if group]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, fused=True)
    tokens = torch.randint(SETTINGS.vocabulary, (BATCH // parts, SETTINGS.sequence + 1))

    def step() -> float:
        optimizer.zero_grad()
        with loss_parallel() if split else nullcontext():
            loss = model(tokens)
            loss.backward()
        optimizer.step()
        return loss.item()

    serve(step)


def fully_sharded(model: Decoder) -> nn.Module:
    """FSDP2: a layer's parameters are gathered when it is used."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)  # in place
    return model


def tensor_parallel(model: Decoder) -> nn.Module:
    """Megatron's splits, of the vocabulary too."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    columns = ("query_key_value", "gate", "up")
    plan: dict = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel() for name in ("output", "down")}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    tables: dict = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    return parallelize_module(model, mesh, tables)


WRAPS = {"ddp": DistributedDataParallel, "fsdp": fully_sharded, "tp": tensor_parallel}


@contextmanager
def meet(rank: int, processes: int, meeting: str) -> Iterator[None]:
    """Joins several processes, which find each other through a file, for as long as it is open."""
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes
    )
    torch.manual_seed(0)  # the same tokens in all where these share them
    yield
    dist.destroy_process_group()


def lead(module: str, arguments: Sequence[str], processes: int) -> None:
    """Starts every process, and passes each line of stdin on to all; only the first answers."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", module, *arguments, str(rank), f"{folder}/meeting"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL if rank else None,
                text=True,
            )
            for rank in range(processes)
        ]
        for line in sys.stdin:
            for rank in ranks:
                print(line, end="", file=rank.stdin, flush=True)
        for rank in ranks:
            rank.communicate()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["1"]:
            train(1, lambda model: model)
        case [how, processes]:
            lead("benchmarks.sides.torch_step", [how, processes], int(processes))
        case [how, processes, rank, meeting]:
            with meet(int(rank), int(processes), meeting):
                train(int(processes), WRAPS[how], 1 if how == "tp" else int(processes))
