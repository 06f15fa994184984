"""Exercise training_state_bytes (lesson 04): what a model takes before it sees a token.

Your task: return the bytes of training states on one device, as in figure 1 of the ZeRO paper.

Save it while `jaxpar` runs, or check it with `jaxpar check training_state_bytes`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example:
#   training_state_bytes(1000, devices=4, zero=1, param_bytes=2, grad_bytes=2, state_bytes=12) ->
#       7000.0
#   training_state_bytes(1000, devices=4, zero=2, param_bytes=2, grad_bytes=2, state_bytes=12) ->
#       5500.0
#   training_state_bytes(1000, devices=4, zero=3, param_bytes=2, grad_bytes=2, state_bytes=12) ->
#       4000.0
#   training_state_bytes(1000, devices=4, zero=4, param_bytes=2, grad_bytes=2, state_bytes=12)
#       raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.


def training_state_bytes(
    parameters: float,
    *,
    devices: int,
    zero: int,
    param_bytes: float,
    grad_bytes: float,
    state_bytes: float,
) -> float:
    """Bytes of parameters, gradients and optimizer states that one device holds.

    `param_bytes`, `grad_bytes` and `state_bytes` are those of one parameter: in mixed precision
    with Adam 2, 2 and 12. Each device holds an equal shard of what is sharded, not rounded. Stage 0
    of ZeRO shards nothing, stage 1 the optimizer states, stage 2 the gradients as well, and stage 3
    the parameters too.

    Source: Rajbhandari et al. 2020, figure 1

    Raises:
        ValueError: `zero` is none of 0, 1, 2 and 3, or `devices` is below 1.
    """
    raise NotImplementedError(
        "return the bytes of training states on one device, as in figure 1 of the ZeRO paper"
    )
