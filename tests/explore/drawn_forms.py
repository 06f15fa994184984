"""Forms as people might fill them in, drawn at random; some of them are wrong."""

import random
from importlib import import_module
from typing import Any

EXPLORERS = ("schedule", "memory", "layout", "collectives")
SMALL = (1, 2, 4, 8)
CSV = ("", "", "", "0F0,0B0\n1F0,1B0", "0F0,0B0,0F1,0B1\n1F0,1F1,1B1,1B0", "0B0,0F0", "0F0,x")
LIKELY: dict[str, dict[str, Any]] = {
    "schedule": {"p": SMALL, "m": (2, 4, 8, 12), "limit": (0, 0, 2, 4), "csv": CSV},
    "memory": {
        **dict.fromkeys(("pp", "dp", "fsdp", "ep", "cp", "tp"), (1, 1, 1, *SMALL)),
        "microbatch": SMALL, "batch": (64, 512, 1024), "chunks": (1, 1, 2),
        "sequence": (1024, 2048, 4096, 8192),
    },
    "layout": {
        "mesh": ("dp=2,tp=4", "fsdp=4,cp=2", "pp=2,dp=2,tp=2", "dp=16", "dp=3", "x=2"),
        **dict.fromkeys(("b_axes", "t_axes", "d_axes"), ("", "", "dp", "tp", "dp tp", "fsdp")),
        **dict.fromkeys("btd", (*SMALL, 6, 16, 48)),
    },
    "collectives": {"frame": range(8)},
}  # fmt: skip


def controls_of(name: str) -> Any:
    """The controls of an explorer."""
    return import_module(f"jaxpar.explore.{name}").CONTROLS


def drawn(name: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """So many forms of an explorer; about half of the fields keep their defaults."""
    rng = random.Random(f"{name} {seed}")
    return [
        {c["name"]: _value(rng, name, c) for c in controls_of(name) if rng.random() < 0.5}
        for _ in range(count)
    ]


def _value(rng: random.Random, name: str, control: dict[str, Any]) -> Any:
    likely = LIKELY[name].get(control["name"])
    if likely is not None:
        return rng.choice(likely)
    match control["kind"]:
        case "choice":
            return rng.choice(control["choices"])[0]
        case "flag":
            return rng.random() < 0.5
        case "number":
            most = min(control["maximum"], 8)
            whole = control["step"] == "1"
            return rng.randint(control["minimum"], most) if whole else rng.uniform(0.1, most)
    return control["default"]
