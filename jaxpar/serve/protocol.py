"""The form of OpenAI's completions: what a body asks for, what answers say, and errors."""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxpar.serve.sampling import MOST_SEED, Sampling
from jaxpar.serve.text import Alphabet

DEFAULT_TOKENS, MOST_STOPS, MOST_STOP_LETTERS, MOST_TEMPERATURE = 16, 4, 256, 2.0
MOST_SHOWN = 100
LEAST_TOP_P = 1e-6  # a float32 that no rounding makes 0
ONLY = {
    "n": 1, "best_of": 1, "echo": False, "suffix": None, "logprobs": None,
    "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": None,
}  # fmt: skip
"""What this server knows one value of."""
KINDS = {
    404: "not_found_error", 429: "rate_limit_error", 500: "server_error", 503: "server_error",
    504: "server_error",
}  # fmt: skip


class ApiError(Exception):
    """An answer that is an error.

    Attributes:
        status: the HTTP status.
        message: what is wrong, and what to do.
        param: the field of the body that is wrong.
        code: a word for programs.
        retry_seconds: when to try again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_seconds = retry_seconds

    @property
    def body(self) -> dict[str, Any]:
        """The error as OpenAI's API has it."""
        kind = KINDS.get(self.status, "invalid_request_error")
        said = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": said}


@dataclass(frozen=True)
class Completion:
    """What a body asks for.

    Attributes:
        prompt: the tokens to go on from.
        tokens: how many tokens are generated at most.
        sampling: how each is chosen.
        stops: strings that end the text.
        stream: whether text is sent as it comes.
        counts: whether a stream ends with how many tokens there were.
    """

    prompt: tuple[int, ...]
    tokens: int
    sampling: Sampling
    stops: tuple[str, ...]
    stream: bool
    counts: bool


def parse(body: bytes, model: str, alphabet: Alphabet) -> Completion:
    """Reads the body of a request.

    Raises:
        ApiError: it cannot be read, or asks for what there is not.
    """
    asked = _object(body)
    named = asked.get("model")
    if named not in (None, model):
        message = f"model {_shown(named)} is unknown; use {model!r}"
        raise ApiError(404, message, param="model", code="model_not_found")
    for name, only in ONLY.items():
        given = asked.get(name)
        if given not in (None, only, {}):
            raise _wrong(name, given, f"only {json.dumps(only)} is known here; leave it out")
    return Completion(
        prompt=_prompt(asked.get("prompt"), alphabet),
        tokens=_whole(asked, "max_tokens", DEFAULT_TOKENS, 1),
        sampling=Sampling(
            temperature=_number(asked, "temperature", 1.0, 0.0, MOST_TEMPERATURE),
            top_p=_number(asked, "top_p", 1.0, LEAST_TOP_P, 1.0),
            top_k=_whole(asked, "top_k", 0, 0),
            seed=_whole(asked, "seed", random.randrange(MOST_SEED), 0),
        ),
        stops=_stops(asked.get("stop")),
        stream=_flag(asked, "stream"),
        counts=_flag(_options(asked), "include_usage"),
    )


def completion(
    name: str,
    model: str,
    created: int,
    text: str,
    ended: str | None,
    usage: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """An answer, or a part of one that is streamed; `ended` is why the text ends."""
    choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": ended}
    answer = {"id": name, "object": "text_completion", "created": created, "model": model}
    return answer | {"choices": [choice]} | ({"usage": usage} if usage else {})


def usage(prompt: int, generated: int) -> dict[str, int]:
    """How many tokens there were."""
    counts = {"prompt_tokens": prompt, "completion_tokens": generated}
    return counts | {"total_tokens": prompt + generated}


def event(data: Mapping[str, Any] | str) -> bytes:
    """A server-sent event with this data."""
    text = data if isinstance(data, str) else json.dumps(data, separators=(",", ":"))
    return f"data: {text}\n\n".encode()


def _object(body: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        first = str(error).partition("\n")[0][:200]
        raise ApiError(400, f"the body is not JSON: {first}; send an object") from None
    if not isinstance(asked, dict):
        raise ApiError(400, f"the body is a {type(asked).__name__} of JSON; send an object")
    return asked


def _prompt(prompt: Any, alphabet: Alphabet) -> tuple[int, ...]:
    what = "send a text, or a list of tokens, that is not empty"
    if isinstance(prompt, str) and prompt:
        try:
            return tuple(alphabet.encode(prompt))
        except UnicodeEncodeError:
            raise _wrong("prompt", prompt, "it has half of a character; send whole ones") from None
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return tuple(prompt)
    raise _wrong("prompt", prompt, what)


def _stops(stop: Any) -> tuple[str, ...]:
    stops = [stop] if isinstance(stop, str) else stop or []
    right = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not right or not all(
        isinstance(one, str) and 0 < len(one) <= MOST_STOP_LETTERS for one in stops
    ):
        what = f"send up to {MOST_STOPS} strings of 1 to {MOST_STOP_LETTERS} characters"
        raise _wrong("stop", stop, what)
    return tuple(stops)


def _options(asked: Mapping[str, Any]) -> Mapping[str, Any]:
    options = asked.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise _wrong("stream_options", options, "send an object")
    return options or {}


def _flag(asked: Mapping[str, Any], name: str) -> bool:
    value = asked.get(name)
    if value is not None and not isinstance(value, bool):
        raise _wrong(name, value, "send true or false")
    return bool(value)


def _whole(asked: Mapping[str, Any], name: str, default: int, least: int) -> int:
    value = asked.get(name)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= MOST_SEED:
        raise _wrong(name, value, f"send a whole number from {least} to {MOST_SEED}")
    return value


def _number(
    asked: Mapping[str, Any], name: str, default: float, least: float, most: float
) -> float:
    value = asked.get(name)
    if value is None:
        return default
    if type(value) not in (int, float) or not least <= value <= most:
        raise _wrong(name, value, f"send a number from {least:g} to {most:g}")
    return float(value)


def _wrong(name: str, value: Any, what: str) -> ApiError:
    return ApiError(400, f"{name} is {_shown(value)}; {what}", param=name)


def _shown(value: Any) -> str:
    """What was sent, cut off where it is long."""
    try:
        shown = json.dumps(value)
    except RecursionError:
        return "nested too deeply"
    return shown if len(shown) <= MOST_SHOWN else f"{shown[:MOST_SHOWN]}..."
