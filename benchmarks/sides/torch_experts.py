"""The same layer of experts in PyTorch: processes that exchange tokens by `all_to_all_single`.

Each process has some of the experts, each of which is three `nn.Linear`. Tokens are sorted by
expert, sent in as many rows as choose each process, and sorted again where they arrive.
"""

import os
import sys

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch import distributed as dist  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from benchmarks.sides.our_experts import DEVICES, EXPERTS, TOKENS, TOP_K, D, F, random_arrays
from benchmarks.sides.race import serve
from benchmarks.sides.torch_step import lead, linear, meet, over_processes, tensor

OWN = EXPERTS // DEVICES


class Exchange(torch.autograd.Function):
    """An all-to-all of rows, whose gradient goes back by another."""

    @staticmethod
    def forward(ctx, x: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """The rows from all processes: `sent` and `received` are how many go to and from each."""
        ctx.sizes = sent, received
        y = x.new_empty(sum(received), *x.shape[1:])
        dist.all_to_all_single(y, x.contiguous(), received, sent)
        return y

    @staticmethod
    def backward(ctx, dy: Tensor) -> tuple[Tensor, None, None]:
        """The gradients of the rows, back where these came from."""
        sent, received = ctx.sizes
        dx = dy.new_empty(sum(sent), *dy.shape[1:])
        dist.all_to_all_single(dx, dy.contiguous(), sent, received)
        return dx, None, None


class Expert(nn.Module):
    """A gated MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = linear(D, F), linear(D, F), linear(F, D)

    def forward(self, x: Tensor) -> Tensor:
        """What the expert gives for each row."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Mixture(nn.Module):
    """This process's experts, and the router, with our parameters."""

    def __init__(self, rank: int, arrays: dict[str, Tensor]) -> None:
        super().__init__()
        self.router = linear(D, EXPERTS)
        self.experts = nn.ModuleList(Expert() for _ in range(OWN))
        states = {"router.weight": arrays["router"].mT}
        for i in range(OWN):
            for name in ("gate", "up", "down"):
                states[f"experts.{i}.{name}.weight"] = arrays[name][rank * OWN + i].mT
        self.load_state_dict(states)

    def forward(self, x: Tensor) -> Tensor:
        """What the experts of each of this process's tokens give."""
        scores, experts = self.router(x).softmax(dim=1).topk(TOP_K, dim=1)
        weights = scores / scores.sum(dim=1, keepdim=True)
        order = experts.flatten().argsort(stable=True)
        counts = experts.flatten().bincount(minlength=EXPERTS)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent, received = (
            count.view(DEVICES, OWN).sum(dim=1).tolist() for count in (counts, theirs)
        )
        rows = Exchange.apply(x[order // TOP_K], sent, received)
        # They arrive process by process; within these they are sorted by expert.
        whose = torch.arange(OWN).repeat(DEVICES).repeat_interleave(theirs)
        by_expert = whose.argsort(stable=True)
        parts = rows[by_expert].split(whose.bincount(minlength=OWN).tolist())
        results = torch.cat([one(part) for one, part in zip(self.experts, parts, strict=True)])
        back = torch.empty_like(results).index_copy(0, by_expert, results)
        returned = Exchange.apply(back, received, sent)
        weighed = returned * weights.flatten()[order][:, None]
        return torch.zeros_like(x).index_add(0, order // TOP_K, weighed)


def take_steps(rank: int) -> None:
    """Losses and gradients of this process's tokens, again and again."""
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // DEVICES))
    arrays = {name: tensor(array) for name, array in random_arrays().items()}
    model = Mixture(rank, arrays)
    x, c = (arrays[name].chunk(DEVICES)[rank] for name in ("x", "c"))
    x = x.clone().requires_grad_()

    def step() -> float:
        model.zero_grad()
        x.grad = None
        loss = (model(x) * c).sum() / (TOKENS * D)
        loss.backward()
        dist.all_reduce(model.router.weight.grad)
        return loss.item()

    serve(step, over_processes)


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            lead("benchmarks.sides.torch_experts", [], DEVICES)
        case [rank, meeting]:
            with meet(int(rank), DEVICES, meeting):
                take_steps(int(rank))
