"""The decoder once more, in numpy and float64: position by position, head by head."""

from functools import partial

import numpy as np

from jaxpar.model import Settings


def loss(settings: Settings, params: dict, tokens: np.ndarray) -> float:
    """The mean cross-entropy over every next token."""
    losses = []
    for sequence in tokens:
        scores = logits(settings, params, sequence[:-1])
        for score, target in zip(scores, sequence[1:], strict=True):
            losses.append(np.log(np.sum(np.exp(score))) - score[target])
    return float(np.mean(losses))


def logits(settings: Settings, params: dict, sequence: np.ndarray) -> np.ndarray:
    """The logits [t, v] of one sequence [t]."""
    stream = [params["embedding"][token] for token in sequence]
    if settings.positions == "learned":
        stream = [x + params["positions"][t] for t, x in enumerate(stream)]
    for layer in range(settings.layers):
        own = _take(params["layers"], layer)
        normed = [norm(x, own["attention_norm"], settings) for x in stream]
        gathered = attend(settings, own["attention"], normed)
        stream = [x + y for x, y in zip(stream, gathered, strict=True)]
        normed = [norm(x, own["mlp_norm"], settings) for x in stream]
        mixed = mix if settings.experts else lambda _, own, xs: [mlp(own, x) for x in xs]
        stream = [x + y for x, y in zip(stream, mixed(settings, own["mlp"], normed), strict=True)]
    head = params["embedding"].T if settings.tied else params["head"]
    scores = np.stack([norm(x, params["final_norm"], settings) @ head for x in stream])
    scores[:, settings.vocabulary - settings.padding :] = np.finfo(np.float32).min
    return scores


def norm(x: np.ndarray, params: dict, settings: Settings) -> np.ndarray:
    """LayerNorm where there is a bias, else RMSNorm."""
    epsilon = settings.norm_epsilon
    if "bias" in params:
        return (x - x.mean()) / np.sqrt(x.var() + epsilon) * params["scale"] + params["bias"]
    return x / np.sqrt(np.mean(x**2) + epsilon) * params["scale"]


def mlp(params: dict, x: np.ndarray) -> np.ndarray:
    """SwiGLU where there is a gate, else GELU."""
    up = linear(params, "up", x)
    if "gate" in params:
        gate = linear(params, "gate", x)
        hidden = gate / (1 + np.exp(-gate)) * up
    else:
        hidden = up * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3))) / 2
    return linear(params, "down", hidden)


def linear(params: dict, name: str, x: np.ndarray, own: slice = slice(None)) -> np.ndarray:
    """Some outputs of a linear layer, with its bias if it has one."""
    bias = params.get(f"{name}_bias")
    return x @ params[name][:, own] + (0 if bias is None else bias[own])


def mix(settings: Settings, params: dict, xs: list[np.ndarray]) -> list[np.ndarray]:
    """What the best experts of each position give, by weight, and the shared ones."""
    ys = []
    for x in xs:
        scores = x @ params["router"]
        ranked = scores
        if settings.balance == "bias":
            scores = 1 / (1 + np.exp(-scores))
            ranked = scores + params["load_bias"]
        else:
            scores = np.exp(scores)
        best = np.argsort(-ranked, kind="stable")[: settings.top_k]
        y = sum(scores[i] * mlp(_take(params["experts"], i), x) for i in best) / scores[best].sum()
        ys.append(y + mlp(params["shared"], x) if settings.shared_experts else y)
    return ys


def attend(settings: Settings, params: dict, xs: list[np.ndarray]) -> list[np.ndarray]:
    """Each position's attention over itself and those before it."""
    h, group = settings.d_head, settings.heads // settings.key_heads
    rotary = settings.positions == "rotary"
    turn = partial(rotate, settings) if rotary else lambda x, position: x
    outputs = []
    for t, x in enumerate(xs):
        heads = []
        for a in range(settings.heads):
            own, shared = slice(a * h, (a + 1) * h), slice(a // group * h, (a // group + 1) * h)
            q = turn(linear(params, "query", x, own), t)
            keys = [turn(linear(params, "key", xs[s], shared), s) for s in range(t + 1)]
            values = [linear(params, "value", xs[s], shared) for s in range(t + 1)]
            weights = np.exp([q @ k / np.sqrt(h) for k in keys])
            heads.append(weights @ np.stack(values) / weights.sum())
        outputs.append(linear(params, "output", np.concatenate(heads)))
    return outputs


def rotate(settings: Settings, x: np.ndarray, position: int) -> np.ndarray:
    """Rotates each pair (i, i + h/2) as a complex number."""
    half = len(x) // 2
    angles = np.array([position * frequency(settings, i / half) for i in range(half)])
    turned = (x[:half] + 1j * x[half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag])


def frequency(settings: Settings, exponent: float) -> float:
    """The angle from one position to the next, scaled as in Llama 3.1 where it says so."""
    usual, scaling = settings.rope_theta**-exponent, settings.rope_scaling
    if scaling is None:
        return usual
    wavelength = 2 * np.pi / usual
    if wavelength < scaling.original / scaling.high:
        return usual
    if wavelength > scaling.original / scaling.low:
        return usual / scaling.factor
    smooth = (scaling.original / wavelength - scaling.low) / (scaling.high - scaling.low)
    return (1 - smooth) * usual / scaling.factor + smooth * usual


def _take(params: dict, layer: int) -> dict:
    if not isinstance(params, dict):
        return params[layer]
    return {name: _take(part, layer) for name, part in params.items()}
