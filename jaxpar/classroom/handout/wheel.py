"""Zip files that are the same for the same contents, and a wheel of this very installation."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from jaxpar.course.catalog import BadUseError
from jaxpar.course.folder import PACKAGE, fixed_files

PLAIN, PROGRAM = 0o644, 0o755
OF_THE_INSTALLER = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)


def zipped(files: Mapping[str, bytes], programs: tuple[str, ...] = ()) -> bytes:
    """A zip file of these files, in the order of their names, without dates and owners."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix: the mode below is read
            entry.external_attr = (0o100000 | (PROGRAM if name in programs else PLAIN)) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def wheel() -> tuple[str, bytes]:
    """The name of a wheel, and the wheel: what grades here is what learners install.

    pip builds wheels from a checkout only, and with the network; this one needs neither.

    Raises:
        BadUseError: jaxpar is not installed here, only imported.
    """
    try:
        installed = distribution("jaxpar")
    except PackageNotFoundError:
        raise BadUseError(
            "classroom: jaxpar is not installed in this environment; run pip install in its "
            "checkout, then try again"
        ) from None
    files = _package() | _metadata(installed)
    folder = f"jaxpar-{installed.version}.dist-info"
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in sorted(files.items()))
    files[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    return f"jaxpar-{installed.version}-py3-none-any.whl", zipped(files)


def _package() -> dict[str, bytes]:
    """The library, and what a new course folder is made of, as the wheel has them."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file())
    inside = {path.relative_to(PACKAGE): path for path in paths}
    return {
        f"jaxpar/{name.as_posix()}": path.read_bytes()
        for name, path in inside.items()
        if name.parts[0] != "_course" and not any(_is_cache(part) for part in name.parts)
    } | {f"jaxpar/_course/{name}": data for name, data in fixed_files().items()}


def _is_cache(part: str) -> bool:
    return part.startswith(".") or part == "__pycache__"


def _metadata(installed: Distribution) -> dict[str, bytes]:
    found = {}
    for path in installed.files or []:
        folder, _, name = path.as_posix().partition("/")
        if folder.endswith(".dist-info") and name not in OF_THE_INSTALLER:
            found[path.as_posix()] = path.read_binary()
    return found


def _hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"sha256={digest}"
