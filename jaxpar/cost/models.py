"""Decoders by name: models.toml, read once."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.resources import files
from typing import Any

from jaxpar.cost.architecture import Architecture, Experts, Latent


@dataclass(frozen=True)
class Model:
    """A published decoder.

    Attributes:
        architecture: its sizes.
        family: the table of models.toml that it is in.
        count: the published number of parameters: exact, or as printed, as in "145.6B".
        source: where its sizes are published.
    """

    architecture: Architecture
    family: str
    count: int | str
    source: str


def find_model(name: str) -> Architecture:
    """The decoder of this name: "Llama-3-8B" and "meta-llama/Llama-3-8B" are llama3-8b.

    Raises:
        ValueError: there is no such model; says which names are near.
    """
    key = _key(name.rpartition("/")[2])
    if key in _BY_KEY:
        return MODELS[_BY_KEY[key]].architecture
    family = [model for model, its in MODELS.items() if _key(its.family) == key]
    if family:
        raise ValueError(f"model {name!r} comes in several sizes; use one of {', '.join(family)}")
    near = [_BY_KEY[close] for close in get_close_matches(key, _BY_KEY, n=5, cutoff=0.6)]
    families = ", ".join(dict.fromkeys(model.family for model in MODELS.values()))
    hint = f"nearest: {', '.join(dict.fromkeys(near))}; " if near else ""
    raise ValueError(
        f"model {name!r} is unknown; {hint}the name of a family lists its models: {families}"
    )


def from_sizes(
    *,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int | None = None,
    ffn: int | None = None,
    vocab: int = 50257,
    gated: bool = False,
) -> Architecture:
    """A decoder of one's own: like GPT-2, or if `gated` like Llama.

    Like GPT-2: layer norms, biases, dropout, a head tied to the embedding; but positions have no
    table, so that any sequence will do. Like Llama: norms of one vector, no biases, no dropout, a
    head of its own. The MLP is 4 times as wide as `hidden`, unless `ffn` says otherwise; `vocab`
    is GPT-2's, unless given.

    Raises:
        ValueError: no decoder has such sizes.
    """
    return Architecture(
        f"{layers} layers of {hidden}",
        layers,
        hidden,
        heads,
        vocab,
        kv_heads=kv_heads,
        ffn=ffn,
        gated=gated,
        tied=not gated,
        norm="rms" if gated else "layer",
        biases="none" if gated else "all",
        dropout=not gated,
    )


def _key(name: str) -> str:
    return "".join(letter for letter in name.casefold() if letter.isalnum() or letter == ".")


def _read() -> tuple[Mapping[str, Model], Mapping[str, str]]:
    """The models by name, and other names of them."""
    tables = tomllib.loads(files("jaxpar.cost").joinpath("models.toml").read_text("utf-8"))
    aliases = tables.pop("aliases")
    models = {}
    for family, table in tables.items():
        source, members = table.pop("source"), table.pop("models")
        for name, own in members.items():
            sizes = table | own
            count = sizes.pop("count")
            models[name] = Model(_architecture(name, sizes), family, count, source)
    return models, aliases


def _architecture(name: str, sizes: Mapping[str, Any]) -> Architecture:
    experts, latent = sizes.get("experts"), sizes.get("latent")
    parts = {
        "experts": Experts(**experts) if experts else None,
        "latent": Latent(**latent) if latent else None,
    }
    return Architecture(name, **{**sizes, **parts})


MODELS, ALIASES = _read()
_BY_KEY = {_key(name): name for name in MODELS} | {_key(old): new for old, new in ALIASES.items()}
