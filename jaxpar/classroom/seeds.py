"""Seeds that nobody can guess and anybody with the secret can repeat."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

SECRET_BYTES = 32
LEAST_BYTES = 16


def default_secret_file() -> Path:
    """Where the secret of a course is kept, if nobody says where."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "jaxpar" / "course.secret"


def read_secret(path: Path) -> bytes:
    """The secret in a file; a new one, which only its owner can read, where there is no file.

    Raises:
        ValueError: the file cannot be read or made, is too short, or is open to others.
    """
    try:
        if not path.exists():
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
    """The seed of a judgement: another for each student's file, the same on a re-grade."""
    return int.from_bytes(_mac(secret, "seed", exercise, submission_hash)[:8])


def seed_id(secret: bytes, exercise: str, submission_hash: str) -> str:
    """A name for the seed, which does not tell it."""
    return _mac(secret, "name", exercise, submission_hash).hex()[:16]


def choice(secret: bytes, exercise: str, count: int) -> int:
    """Which of `count` variants of an exercise this course has."""
    return int.from_bytes(_mac(secret, "variant", exercise)[:8]) % count


def _mac(secret: bytes, *words: str) -> bytes:
    return hmac.new(secret, "\0".join(words).encode(), hashlib.sha256).digest()
