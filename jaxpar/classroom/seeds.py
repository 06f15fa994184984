"""The secret of a course, and what follows from it: seeds, and the variants of exercises.

The grader asks for the seed of each judgement here. A student cannot guess it, and whoever has the
secret can repeat it.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpar.contracts.base import variants

SECRET_BYTES = 32
LEAST_BYTES = 16


def default_secret_file() -> Path:
    """Returns the file in which the secret of a course is kept unless another one is named."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "jaxpar" / "course.secret"


def read_secret(path: Path, *, must_exist: bool = False) -> bytes:
    """Returns the secret in a file, or makes a new one that only its owner can read.

    Args:
        path: the file.
        must_exist: whether there are results already, which a new secret would not repeat.

    Raises:
        ValueError: the file cannot be read or made, is too short, or is open to others.
    """
    try:
        if not path.exists():
            if must_exist:
                raise ValueError(
                    f"grade: there is no secret {path}, and these results were judged with one; "
                    "name the same --secret-file as before"
                )
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(SECRET_BYTES) + "\n")
        mode, secret = path.stat().st_mode, path.read_bytes().strip()
    except OSError as error:
        raise ValueError(f"grade: the secret {path}: {error.strerror}; use --secret-file") from None
    if mode & 0o077:
        raise ValueError(f"grade: the secret {path} is open to others; run chmod 600 {path}")
    if len(secret) < LEAST_BYTES:
        raise ValueError(
            f"grade: the secret {path} has {len(secret)} bytes; use {LEAST_BYTES} or more, or "
            "remove the file and let a new one be made"
        )
    return secret


def seed(secret: bytes, exercise: str, submission_hash: str) -> int:
    """Returns the seed of a judgement, which differs by file and is the same on a re-grade."""
    return int.from_bytes(_mac(secret, "seed", exercise, submission_hash)[:8])


def hidden_seed(secret: bytes, exercise: str) -> int:
    """Returns the seed of an exercise's hidden cases, which are the same for the whole class."""
    return int.from_bytes(_mac(secret, "hidden", exercise)[:8])


def seed_id(secret: bytes, exercise: str, submission_hash: str) -> str:
    """Returns a name for the seed that does not tell what the seed is."""
    return _mac(secret, "name", exercise, submission_hash).hex()[:16]


def is_of_secret(secret: bytes, record: Mapping[str, Any]) -> bool:
    """Tells whether a record was judged with a seed that follows from this secret."""
    return record["seed_id"] == seed_id(secret, record["exercise"], record["submission_hash"])


def chosen_variants(secret: bytes, contracts: Mapping[str, str]) -> dict[str, int]:
    """Returns the number of the variant of each exercise that the course with this secret has.

    Args:
        secret: the secret of the course.
        contracts: where the contract of each exercise is, by the exercise's id.
    """
    return {id: _choice(secret, id, variants(where)) for id, where in contracts.items()}


def _choice(secret: bytes, exercise: str, count: int) -> int:
    return int.from_bytes(_mac(secret, "variant", exercise)[:8]) % count


def _mac(secret: bytes, *words: str) -> bytes:
    return hmac.new(secret, "\0".join(words).encode(), hashlib.sha256).digest()
