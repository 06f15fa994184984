"""The same training step of adapters in eager PyTorch, as peft writes a linear layer with LoRA."""

import os

import torch  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn  # pyright: ignore[reportMissingImports]
from torch.nn import functional  # pyright: ignore[reportMissingImports]

from benchmarks.sides.our_lora import DECAY, LAYERS, RATE, SCALE, R, random_arrays
from benchmarks.sides.race import serve
from benchmarks.sides.torch_step import linear


class LoraLinear(nn.Module):
    """A frozen linear layer, and two thin ones beside it."""

    def __init__(self, w: Tensor, a: Tensor, b: Tensor) -> None:
        super().__init__()
        d, f = w.shape
        self.base, self.a, self.b = linear(d, f), linear(d, R), linear(R, f)
        for layer, weight in ((self.base, w), (self.a, a), (self.b, b)):
            layer.weight.data.copy_(weight.T)
        self.base.weight.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """The frozen product, and what the adapter adds."""
        return self.base(x) + SCALE * self.b(self.a(x))


class Layer(nn.Module):
    """An MLP beside the stream."""

    def __init__(self, up: LoraLinear, down: LoraLinear) -> None:
        super().__init__()
        self.up, self.down = up, down

    def forward(self, x: Tensor) -> Tensor:
        """The stream after this layer."""
        return x + self.down(functional.gelu(self.up(x), approximate="tanh"))


def take_steps() -> None:
    """Steps of AdamW on the adapters."""
    torch.set_num_threads(os.cpu_count() or 1)
    base, low, array = random_arrays()

    def adapted(name: str, i: int) -> LoraLinear:
        parts = base[name], low[f"{name}_a"], low[f"{name}_b"]
        return LoraLinear(*(torch.from_numpy(part[i]) for part in parts))

    model = nn.Sequential(*(Layer(adapted("up", i), adapted("down", i)) for i in range(LAYERS)))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=RATE, weight_decay=DECAY, fused=True)
    x = torch.from_numpy(array)

    def step() -> float:
        optimizer.zero_grad()
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    serve(step)


if __name__ == "__main__":
    take_steps()
