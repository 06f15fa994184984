"""What the learner is told about each known mistake, in one sentence."""

from jaxpar.contracts.sentences import (
    collectives,
    costs,
    data_parallel,
    devices,
    fsdp,
    gpipe,
    parameter_server,
    planner,
    precision,
    remat,
    ring_and_tree,
    ring_matmul,
    sampler,
    schedules,
    sequence,
    tensor,
    tensor_nd,
    variants,
    vocabulary,
    zero,
)


def merge(*parts: dict[str, str]) -> dict[str, str]:
    """One dict of all sentences.

    Raises:
        ValueError: two mistakes have the same name.
    """
    merged: dict[str, str] = {}
    for part in parts:
        for name in part.keys() & merged.keys():
            raise ValueError(f"sentences: two mistakes are named {name}; rename one")
        merged |= part
    return merged


SENTENCES = merge(
    devices.SENTENCES,
    collectives.SENTENCES,
    ring_and_tree.SENTENCES,
    costs.SENTENCES,
    data_parallel.SENTENCES,
    parameter_server.SENTENCES,
    sampler.SENTENCES,
    precision.SENTENCES,
    remat.SENTENCES,
    tensor.SENTENCES,
    tensor_nd.SENTENCES,
    zero.SENTENCES,
    fsdp.SENTENCES,
    sequence.SENTENCES,
    vocabulary.SENTENCES,
    ring_matmul.SENTENCES,
    schedules.SENTENCES,
    gpipe.SENTENCES,
    planner.SENTENCES,
    variants.SENTENCES,
)
