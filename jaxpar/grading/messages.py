"""The messages between the judge and its worker: each is a dataclass that both ends use.

Those of the reader are in `reader_messages`, so that a worker need not import the inspector.

A message travels as the JSON object of its fields, and the names of the fields say which message it
is; the bytes of programs and arrays follow in frames of their own. What arrives is decoded by the
declared types and by nothing else: a message with an unknown, a superfluous or a missing field, or
with a value of another type, is refused. Neither end relies on what the other end has checked.
"""

# The decoder reads the types of the fields, so this module has no postponed annotations.

import math
import types
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from typing import Any, Literal, Union, get_args, get_origin

from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.grading.channel import ProtocolError

ProgramKey = tuple[Literal["forward", "gradient"], int]
"""Which program of an answer: the kind, and the number of the case."""


@dataclass(frozen=True)
class Output:
    """One output of a program, on one device.

    Attributes:
        shape: its local shape.
        dtype: the name of its dtype.
        varying: the mesh axes over which its type varies.
        place: where it stands in the result, as in `[1]['bias']`, a tuple like a list.
    """

    shape: tuple[int, ...]
    dtype: str
    varying: tuple[str, ...]
    place: str = ""


@dataclass(frozen=True)
class Call:
    """One call of an answer with plain data."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


# What a child says before it is asked anything.


@dataclass(frozen=True)
class Ready:
    """The child has imported what it needs."""

    ready: Literal[True] = True


# The judge to the worker.


@dataclass(frozen=True)
class WorkerJob:
    """The learner's file, and how it is called; nothing in it tells what is right.

    Attributes:
        memory_bytes: the address space that the process may have.
        cpu_seconds: the processor time that it may take.
        exercise: the name of the function to call.
        kind: the kind of the exercise, as in its contract.
        source: the text of the file.
        filename: its name, for the line numbers in errors.
        cases: the calls of an SPMD function, each on its mesh.
        first: the number of the first of these cases.
        errors: further cases, which must raise ValueError.
        gradient: the names of the arguments with respect to which gradients are wanted.
        imports: what the file may import besides the libraries that every answer may.
        modules: what is imported before the library is closed.
        reference: the library's own answer, `module:name`, which is made to raise.
        devices: how many devices are simulated.
        calls: the calls with plain data, for a value or a schedule.
        order: the numbers of these calls, in the order in which they are made.
    """

    memory_bytes: int
    cpu_seconds: int
    exercise: str
    kind: str
    source: str
    filename: str
    cases: tuple[Case, ...]
    first: int
    errors: tuple[Case, ...]
    gradient: tuple[str, ...]
    imports: tuple[str, ...]
    modules: tuple[str, ...]
    reference: str
    devices: int
    calls: tuple[Call, ...] = ()
    order: tuple[int, ...] = ()

    def with_drawn(self, drawn: "DrawnCases") -> "WorkerJob":
        """Returns the job for the drawn cases, which the worker does after this one."""
        return replace(self, cases=drawn.cases, first=drawn.first, errors=())


@dataclass(frozen=True)
class DrawnCases:
    """More cases of the same job, sent after the cases that are shown have been answered."""

    cases: tuple[Case, ...]
    first: int


# The worker to the judge.


@dataclass(frozen=True)
class ExportedProgram:
    """One program and its outputs; the bytes of the program follow."""

    program: ProgramKey
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class ExportFailure:
    """What was raised where a program should have been exported, or the file loaded.

    Attributes:
        failure: which program could not be exported; `load` if the file could not be loaded.
        kind: the kind of error, as the translator names it.
        message: what the error means.
        raised: the name of the exception, where one was raised.
        is_value_error: whether it is a ValueError.
    """

    failure: tuple[Literal["load", "forward", "gradient"], int]
    kind: str
    message: str
    raised: str | None = None
    is_value_error: bool = False


@dataclass(frozen=True)
class BadCallOutcome:
    """What was raised by a call that must raise ValueError.

    Attributes:
        error: the number of the call among the bad calls of the contract.
        raised: the name of the exception; None if nothing was raised.
        is_value_error: whether it is a ValueError.
        deliberate: whether a statement of the answer raised it.
    """

    error: int
    raised: str | None
    is_value_error: bool
    deliberate: bool


@dataclass(frozen=True)
class ReturnedValue:
    """What a call returned.

    Attributes:
        value: the number of the call.
        result: the plain data that was returned; a text says in words what was returned instead.
    """

    value: int
    result: Any


@dataclass(frozen=True)
class RaisedByCall:
    """What a call raised instead of returning a value.

    Attributes:
        value: the number of the call.
        kind: the kind of error, as the translator names it.
        explained: what the error means.
        raised: the name of the exception.
        is_value_error: whether it is a ValueError.
    """

    value: int
    kind: str
    explained: str
    raised: str
    is_value_error: bool


@dataclass(frozen=True)
class Done:
    """The worker has answered everything that the job asks for."""

    done: Literal[True] = True


WorkerReply = ExportedProgram | ExportFailure | BadCallOutcome | ReturnedValue | RaisedByCall | Done


def encode(message: Any) -> Any:
    """Returns the message as plain data for JSON."""
    if isinstance(message, Case | Call):
        return {
            field.name: _encode_value(getattr(message, field.name)) for field in fields(message)
        }
    if isinstance(message, ReturnedValue):  # its result is plain data already, of any depth
        return dict(vars(message))
    if is_dataclass(message):
        return {field.name: encode(getattr(message, field.name)) for field in fields(message)}
    if isinstance(message, tuple | list):
        return [encode(item) for item in message]
    return message


def decode(kind: Any, data: Any) -> Any:
    """Returns the message that `encode` made this data from.

    Args:
        kind: the class of the message, or the union of the classes that it may have.
        data: what arrived as JSON.

    Raises:
        ProtocolError: the data is not such a message.
    """
    if kind is Any or (kind in (bool, int, str) and type(data) is kind):
        return data
    if kind is float and type(data) in (int, float):
        return data
    if kind is types.NoneType and data is None:
        return data
    if is_dataclass(kind) and type(data) is dict:
        return _decode_fields(kind, data)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal and any(type(data) is type(one) and data == one for one in parts):
        return data
    if origin is tuple and type(data) is list:
        return _decode_tuple(parts, data)
    if origin in (Union, types.UnionType):
        return _decode_one_of(parts, data)
    raise ProtocolError(f"{type(data).__name__} where {_name(kind)} must be")


def _decode_fields(kind: Any, data: dict) -> Any:
    types_by_name = {field.name: field.type for field in fields(kind)}
    if data.keys() != types_by_name.keys():
        raise ProtocolError(f"the fields of {_name(kind)} are {', '.join(types_by_name)}")
    if kind in (Case, Call):  # the judge sends these, so only the worker and the reader decode them
        return kind(**{name: _decode_value(item) for name, item in data.items()})
    return kind(**{name: decode(types_by_name[name], item) for name, item in data.items()})


def _decode_tuple(parts: tuple[Any, ...], data: list) -> tuple:
    if parts[1:] == (...,):
        return tuple(decode(parts[0], item) for item in data)
    if len(parts) != len(data):
        raise ProtocolError(f"{len(data)} items where {len(parts)} must be")
    return tuple(decode(part, item) for part, item in zip(parts, data, strict=True))


def _decode_one_of(parts: tuple[Any, ...], data: Any) -> Any:
    reasons = []
    for part in parts:
        try:
            return decode(part, data)
        except ProtocolError as error:
            reasons.append(str(error))
    raise ProtocolError("; ".join(reasons))


def _name(kind: Any) -> str:
    return getattr(kind, "__name__", str(kind))


def _encode_value(value: Any) -> Any:
    """A value inside a case or a call, as JSON that keeps tuples, lists and dicts apart."""
    match value:
        case ArraySpec():
            return {"array": asdict(value)}
        case Function():
            return {"function": value.path}
        case Made():
            return {"made": [value.function.path, *map(_encode_value, value.values)]}
        case dict():
            return {"dict": {key: _encode_value(item) for key, item in value.items()}}
        case tuple():
            return {"tuple": [_encode_value(item) for item in value]}
        case list():
            return {"list": [_encode_value(item) for item in value]}
        case float() if not math.isfinite(value):  # NaN and infinity, which JSON has not
            return {"float": repr(value)}
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(
        f"messages.encode: a case with a value of type {type(value).__name__}; arrays, functions, "
        "numbers, texts, and dicts, lists and tuples of these are allowed; use one of them"
    )


def _decode_value(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    ((kind, item),) = data.items()
    match kind:
        case "array":
            return ArraySpec(**{**item, "shape": tuple(item["shape"])})
        case "function":
            return Function(item)
        case "float":
            return float(item)
        case "made":
            path, *values = item
            return Made(Function(path), tuple(map(_decode_value, values)))
        case "dict":
            return {key: _decode_value(child) for key, child in item.items()}
        case "tuple":
            return tuple(_decode_value(child) for child in item)
        case "list":
            return [_decode_value(child) for child in item]
    raise ProtocolError(f"a value of the unknown kind {kind}")
