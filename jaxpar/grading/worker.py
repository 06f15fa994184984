"""The process that runs the learner's Python: it exports programs, and expects nothing.

Started as `python -m jaxpar.grading.worker`. It reads one job from its standard input and
answers on what was its standard output; what the answer prints goes to standard error.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import linecache
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from jaxpar.grading.cases import decode, decode_case
from jaxpar.grading.channel import END_OF_OUTPUT, receive, send_blob, send_json
from jaxpar.grading.imports import close_library, learner_builtins, refused_text
from jaxpar.grading.lifetime import begin_child, importing, limit_process
from jaxpar.grading.translate import Explanation, translate

Job = dict[str, Any]
MAX_RESULT_CHARACTERS = 1 << 15  # more of them in all would break the protocol
PLAIN = (bool, int, float, str, list, tuple, dict, type(None))


def main() -> None:
    """Answers one job; the process ends with it, or with its parent."""
    replies = begin_child()
    with importing():  # a warm spare has these behind it
        import jaxpar.grading.program as programs
        import jaxpar.grading.specs as specs

    send_json(replies, {"ready": True})
    job = receive(sys.stdin.buffer)
    if job is None:
        return
    limit_process(job["memory_bytes"], job["cpu_seconds"])
    for frames in _answer(job, programs, specs):
        _send(replies, *frames)
    sys.stdout.flush()
    os._exit(0)


def _send(replies: IO[bytes], header: dict, blob: bytes | None = None) -> None:
    send_json(replies, header)
    if blob is not None:
        send_blob(replies, blob)


def _answer(job: Job, programs: ModuleType, specs: ModuleType) -> Iterator[tuple]:
    filename = job["filename"]
    refused = refused_text(job["source"], job["imports"])
    if refused:
        yield ({"failure": ["load", 0], "kind": "text", "message": refused},)
        yield ({"done": True},)
        return
    try:
        function = _load(job)
    except BaseException as error:
        yield (_failure(["load", 0], error, filename),)
        yield ({"done": True},)
        return
    more: Job | None = {}
    while more is not None:  # hidden cases come when those that are shown have been answered
        job |= more
        if "calls" in job:
            yield from _values(function, job)
        elif job["kind"] == "specs":
            yield from _specs(function, job, specs)
        else:
            yield from _programs(function, job, programs)
        _end_output()
        yield ({"done": True},)
        more = receive(sys.stdin.buffer)


def _end_output() -> None:
    """Says that all is printed so far: what is printed later may be of a hidden case."""
    with contextlib.suppress(OSError, ValueError):  # closed, by the answer
        sys.stdout.flush()
        os.write(2, END_OF_OUTPUT)


def _load(job: Job) -> Callable:
    """Runs the learner's module with the library closed behind it."""
    import jax

    source, filename = job["source"], job["filename"]
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, filename, "exec")
    for name in job["modules"]:
        importlib.import_module(name)
    _close_files()
    if job["devices"]:
        from jaxpar.mesh import simulate_devices

        simulate_devices(job["devices"])
        jax.devices()
    jax.debug.print = _print_now
    close_library(job["reference"], job["modules"])
    module = ModuleType("answer")
    module.__dict__["__file__"] = filename
    module.__dict__["__builtins__"] = learner_builtins(job["imports"])
    sys.modules["answer"] = module  # dataclasses look their module up
    exec(code, module.__dict__)
    function = getattr(module, job["exercise"], None)
    if not callable(function):
        raise NameError(f"the file defines no function named {job['exercise']}")
    return function


def _close_files() -> None:
    """In a sandbox, closes the library's files, too: before there are threads, for all of them."""
    if sys.argv[1:]:
        from jaxpar.grading import landlock

        orders = json.loads(sys.argv[1])
        paths = landlock.outside(orders["readable"], Path(orders["closed"]))
        landlock.install(dict.fromkeys(paths), ["/dev/null"], None)


def _print_now(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Stands in for jax.debug.print: shows the traced value, and leaves the program alone."""
    del ordered
    print(fmt.format(*args, **kwargs))


def _programs(function: Callable, job: Job, programs: ModuleType) -> Iterator[tuple]:
    filename = job["filename"]
    for i, data in enumerate(job["cases"], job["first"]):
        case = decode_case(data)
        key = ["forward", i]
        try:
            program = programs.export_forward(function, case)
            yield _described(key, program), program.module
            if job["gradient"]:
                key = ["gradient", i]
                program = programs.export_gradient(function, case, job["gradient"], program.outputs)
                yield _described(key, program), program.module
        except BaseException as error:
            yield (_failure(key, error, filename),)
    for i, data in enumerate(job["errors"]):
        try:
            programs.trace(function, decode_case(data))
            yield ({"error": i, "raised": None, "is_value_error": False},)
        except BaseException as error:
            yield (_raised({"error": i}, error),)


def _described(key: list, program: Any) -> dict:
    outputs = [
        {"shape": list(o.shape), "dtype": o.dtype, "varying": list(o.varying), "place": o.place}
        for o in program.outputs
    ]
    return {"program": key, "outputs": outputs}


def _values(function: Callable, job: Job) -> Iterator[tuple]:
    for position in job["order"]:
        args, kwargs = (decode(part) for part in job["calls"][position])
        yield (_value(position, lambda a=args, k=kwargs: function(*a, **k), job["filename"]),)


def _specs(function: Callable, job: Job, specs: ModuleType) -> Iterator[tuple]:
    for i, data in enumerate(job["cases"], job["first"]):
        case = decode_case(data)
        yield (_value(i, lambda c=case: specs.returned(function, c), job["filename"]),)


def _value(position: int, call: Callable[[], Any], filename: str) -> dict:
    """The result of one call as plain data, or what it raises."""
    try:
        result = call()
    except BaseException as error:
        explained = translate(error, filename)
        header = {"value": position, "kind": explained.kind}
        return _raised(header, error) | {"explained": _with_line(explained)}
    text = ""
    try:
        text = json.dumps(result, allow_nan=False, default=_number)
        plain = json.loads(text)
    except Exception:  # what the answer returns may have code of its own
        plain = ""
    if isinstance(plain, str):  # nor is a text one
        plain = _not_plain(result)
    elif len(text) > MAX_RESULT_CHARACTERS:
        plain = f"{len(text):,} characters long, which is too much"
    return {"value": position, "result": plain}


def _number(value: Any) -> Any:
    """The plain numbers in an array of numpy or JAX."""
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError


def _not_plain(value: Any) -> str:
    if issubclass(type(value), float):  # infinite, or none
        return float.__repr__(value)
    parts = value if type(value) in (list, tuple) else ()
    others = [_type_name(part) for part in parts if type(part) not in PLAIN]
    inside = f" with a {others[0]} in it" if others else ""
    return f"a {_type_name(value)}{inside}, not plain data"


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


def _raised(header: dict, error: BaseException) -> dict:
    is_value_error = isinstance(error, ValueError)
    return header | {"raised": type(error).__name__, "is_value_error": is_value_error}


def _failure(key: list, error: BaseException, filename: str) -> dict:
    explained = translate(error, filename)
    failure = {"failure": key, "kind": explained.kind, "message": _with_line(explained)}
    return _raised(failure, error)


def _with_line(explained: Explanation) -> str:
    where = f"line {explained.line}: " if explained.line else ""
    return where + explained.message[:4000]


if __name__ == "__main__":
    main()
