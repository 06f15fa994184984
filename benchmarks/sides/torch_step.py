"""The same training step in PyTorch: in one process, or on a mesh of processes.

Its first parameters and its tokens are ours. It is eager PyTorch as its users write it: fused
projections, scaled_dot_product_attention, fused AdamW.
"""

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import jax
import numpy as np
import torch  # pyright: ignore[reportMissingImports]
import torch.distributed as dist  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.distributed.device_mesh import (  # pyright: ignore[reportMissingImports]
    DeviceMesh,
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

from benchmarks.sides.our_step import BATCH, SETTINGS, random_tokens
from benchmarks.sides.race import serve
from jaxpar.mesh import parse_mesh
from jaxpar.model import Settings, init
from jaxpar.train.optimizer import RATES, WEIGHT_DECAY


def linear(i: int, o: int) -> nn.Linear:
    return nn.Linear(i, o, bias=False)


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention in one process."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    """RMSNorm and attention with rotary positions, RMSNorm and SwiGLU."""

    def __init__(self, attend: Attend, settings: Settings) -> None:
        super().__init__()
        self.attend = attend
        d, f = settings.d_model, settings.d_hidden
        self.d_head = settings.d_head
        self.attention_norm, self.mlp_norm = (nn.RMSNorm(d, eps=1e-6) for _ in range(2))
        self.query_key_value, self.output = linear(d, 3 * d), linear(d, d)
        self.gate, self.up, self.down = linear(d, f), linear(d, f), linear(f, d)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The stream [b, t, d] after this layer."""
        b, t, _ = x.shape
        heads = (b, t, -1, 3, self.d_head)  # of this process
        projected = self.query_key_value(self.attention_norm(x)).view(heads)
        q, k, v = projected.permute(3, 0, 2, 1, 4)  # each [b, a, t, h]
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        gathered = self.attend(q, k, v)
        x = x + self.output(gathered.transpose(1, 2).reshape(b, t, -1))
        y = self.mlp_norm(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Decoder(nn.Module):
    """The decoder that settings describe, with our first parameters, at these positions."""

    def __init__(
        self,
        positions: Sequence[int] | None = None,
        attend: Attend = attend,
        settings: Settings = SETTINGS,
    ) -> None:
        super().__init__()
        positions = range(settings.sequence) if positions is None else positions
        d = settings.d_model
        self.embedding = nn.Embedding(settings.vocabulary, d)
        self.layers = nn.ModuleList(Layer(attend, settings) for _ in range(settings.layers))
        self.norm, self.head = nn.RMSNorm(d, eps=1e-6), linear(d, settings.vocabulary)
        half = settings.d_head // 2
        angles = torch.tensor(positions)[:, None] / 10_000 ** (torch.arange(half) / half)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.load_state_dict(first_parameters(settings), strict=False)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy of the labels of tokens, both [b, t]."""
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def first_parameters(settings: Settings) -> dict[str, Tensor]:
    """Our first parameters, as `Decoder` names and lays them out."""
    params = jax.tree.map(tensor, init(settings, jax.random.key(0)))
    layers, d_head = params["layers"], settings.d_head
    attention, mlp = layers["attention"], layers["mlp"]
    # The rows of a head are together, so that processes that split the rows get whole heads.
    by_heads = [
        attention[name].mT.unflatten(1, (-1, 1, d_head)) for name in ("query", "key", "value")
    ]
    stacked = {
        "attention_norm": layers["attention_norm"]["scale"],
        "mlp_norm": layers["mlp_norm"]["scale"],
        "query_key_value": torch.cat(by_heads, dim=2).flatten(1, 3),
        "output": attention["output"].mT,
        **{name: mlp[name].mT for name in ("gate", "up", "down")},
    }
    ends = {
        "embedding.weight": params["embedding"],
        "norm.weight": params["final_norm"]["scale"],
        "head.weight": params["head"].mT,
    }
    return ends | {
        f"layers.{i}.{name}.weight": one
        for name, leaf in stacked.items()
        for i, one in enumerate(leaf)
    }


def tensor(array: jax.Array) -> Tensor:
    return torch.from_numpy(np.array(array))


def shifted(batch: int, sequence: int = SETTINGS.sequence) -> tuple[Tensor, Tensor]:
    """Random tokens and their labels, both [b, t]."""
    tokens = tensor(random_tokens(batch, sequence)).long()
    return tokens[:, :-1], tokens[:, 1:]


def adamw(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW as ours is. A fused update needs a group for the parameters of each mesh."""
    groups: dict[tuple[DeviceMesh | None, float], list[Tensor]] = {}
    for parameter in model.parameters():
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        decay = WEIGHT_DECAY if parameter.ndim > 1 else 0.0
        groups.setdefault((mesh, decay), []).append(parameter)
    return torch.optim.AdamW(
        [{"params": group, "weight_decay": decay} for (_, decay), group in groups.items()],
        lr=RATES["adamw"],
        fused=True,
    )


def train(
    model: nn.Module,
    tokens: Tensor,
    labels: Tensor,
    processes: int = 1,
    total: Callable[[float], float] = float,
) -> None:
    """Steps of AdamW on this process's part of the tokens."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // processes))
    optimizer = adamw(model)

    def step() -> float:
        optimizer.zero_grad()
        with loss_parallel():  # of processes that split the vocabulary
            loss = model(tokens, labels)
            loss.backward()
        optimizer.step()
        return loss.item() / processes

    serve(step, total)


def train_rank(rank: int, sizes: dict[str, int]) -> None:
    """This process of a mesh: those along dp and fsdp split the tokens."""
    processes, alike = math.prod(sizes.values()), sizes.get("tp", 1)
    mesh = init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    model: nn.Module = Decoder()
    for axis in reversed(sizes):  # FSDP shards what tp has split
        model = WRAPS[axis](model, mesh[axis])
    part, parts = rank // alike, processes // alike
    tokens, labels = (x.chunk(parts)[part] for x in shifted(BATCH))
    train(model, tokens, labels, processes, over_processes)


def over_processes(number: float) -> float:
    """The sum of all processes' numbers."""
    total = torch.tensor(number, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item()


def data_parallel(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    return DistributedDataParallel(model, device_mesh=mesh)


def fully_sharded(model: Decoder, mesh: DeviceMesh) -> Decoder:
    """FSDP2: a layer's parameters are gathered when it is used."""
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)  # in place
    return model


def tensor_parallel(model: Decoder, mesh: DeviceMesh) -> Decoder:
    """Megatron's splits, of the vocabulary too."""
    columns = ("query_key_value", "gate", "up")
    plan: dict = {name: ColwiseParallel() for name in columns}
    plan |= {name: RowwiseParallel() for name in ("output", "down")}
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
    tables: dict = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    return parallelize_module(model, mesh, tables)  # in place


WRAPS = {"dp": data_parallel, "fsdp": fully_sharded, "tp": tensor_parallel}


@contextmanager
def meet(rank: int, processes: int, meeting: str) -> Iterator[None]:
    """Joins several processes, which find each other through a file, for as long as it is open."""
    dist.init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=processes
    )
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
        case []:
            train(Decoder(), *shifted(BATCH))
        case [mesh]:
            lead("benchmarks.sides.torch_step", [mesh], math.prod(parse_mesh(mesh).values()))
        case [mesh, rank, meeting]:
            sizes = parse_mesh(mesh)
            with meet(int(rank), math.prod(sizes.values()), meeting):
                train_rank(int(rank), sizes)
