"""A wheel of this very installation, so that what grades here is what students install.

pip can build a wheel only from a checkout and with network access; this needs neither.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path

PACKAGE = Path(str(files("jaxpar")))
PLAIN, PROGRAM = 0o644, 0o755
OF_THE_INSTALLER = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def zipped(contents: Mapping[str, bytes], programs: tuple[str, ...] = ()) -> bytes:
    """Returns a zip file without dates and owners, which is the same for the same contents."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in sorted(contents.items()):
            entry = zipfile.ZipInfo(name)  # with a date that is always the same
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3  # Unix, so that the mode below is read
            entry.external_attr = (0o100000 | (PROGRAM if name in programs else PLAIN)) << 16
            archive.writestr(entry, data)
    return buffer.getvalue()


def wheel(whole_course: Mapping[str, bytes]) -> tuple[str, bytes]:
    """Returns the name of a wheel, and the wheel.

    Args:
        whole_course: the files that every course folder has, by their names there.

    Raises:
        ValueError: jaxpar is only imported here, and not installed.
    """
    try:
        installed = distribution("jaxpar")
    except PackageNotFoundError:
        raise ValueError(
            "classroom: jaxpar is not installed in this environment; run pip install in its "
            "checkout, then try again"
        ) from None
    packed = _package() | _metadata(installed)
    packed |= {f"jaxpar/_course/{name}": data for name, data in whole_course.items()}
    folder = f"jaxpar-{installed.version}.dist-info"
    record = "".join(f"{name},{_hash(data)},{len(data)}\n" for name, data in sorted(packed.items()))
    packed[f"{folder}/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    return f"jaxpar-{installed.version}-py3-none-any.whl", zipped(packed)


def _package() -> dict[str, bytes]:
    """Returns the files of the library as the wheel has them."""
    paths = (path for path in PACKAGE.rglob("*") if path.is_file())
    inside = {path.relative_to(PACKAGE): path for path in paths}
    return {
        f"jaxpar/{name.as_posix()}": path.read_bytes()
        for name, path in inside.items()
        if name.parts[0] != "_course" and not any(_is_cache(part) for part in name.parts)
    }


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
