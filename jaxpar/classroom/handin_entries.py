"""Walks through what a student handed in: folders, single files, and zip files in either.

No link is followed, nothing is waited for, and nothing of a zip file is written to the disk. What
cannot be looked into is yielded, too, so that nobody loses points without anybody's knowing.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Protocol
from zipfile import ZipFile, ZipInfo

from jaxpar.classroom import archives
from jaxpar.grading.submission import SubmissionError, UnreadableError, read_within

MOST_DEEP = 4
MOST_ENTRIES = 10_000
MOST_ARCHIVES = 10
MOST_NESTED = 2
OTHER_ARCHIVES = (".rar", ".7z", ".tar", ".tgz", ".gz", ".bz2", ".xz")
# Opening waits for nothing: what has become a link or a pipe meanwhile is refused.
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP, errno.ENOENT)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class Entry:
    """A file, or what stands in the place of one.

    Attributes:
        path: where it is, as a person would look for it.
        read: returns its bytes, of which there may be so many, or raises `SubmissionError`.
        is_folder: whether it is a folder, which is walked through as well.
    """

    path: PurePosixPath
    read: Callable[[int], bytes]
    is_folder: bool = False


@dataclass(frozen=True)
class Unseen:
    """Something that was not looked into.

    Attributes:
        path: where it is.
        why: the reason.
        by_machine: whether this machine failed to look, so that the student is not at fault.
        expected: whether nobody's answer is to be found there.
    """

    path: str
    why: str
    by_machine: bool = False
    expected: bool = False


class Place(Protocol):
    """Where a part of a hand-in is."""

    def walk(self) -> Iterator[Entry | Unseen]:
        """Yields what is there."""
        ...


@dataclass(frozen=True)
class FolderPlace:
    """A folder on the disk."""

    folder: Path

    def walk(self) -> Iterator[Entry | Unseen]:
        """Yields what is in the folder and below it."""
        try:
            directory = os.open(self.folder, _FOLDER)
        except OSError as error:
            if self.folder.is_symlink():
                yield Unseen("", "the student's folder is a link")
            else:
                yield _closed("", f"the student's folder cannot be opened ({error.strerror})")
            return
        try:
            yield from _walk_folder(directory, PurePosixPath())
        finally:
            os.close(directory)


@dataclass(frozen=True)
class FilePlace:
    """A single file on the disk, with the name that its student gave it."""

    file: Path
    name: str

    def walk(self) -> Iterator[Entry | Unseen]:
        """Yields the file."""
        yield Entry(PurePosixPath(self.name), self._read)

    def _read(self, most_bytes: int) -> bytes:
        try:
            folder = os.open(self.file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise UnreadableError(f"cannot be opened ({error.strerror})") from None
        try:
            return read_within(folder, self.file.name, most_bytes)
        finally:
            os.close(folder)


@dataclass(frozen=True)
class ZippedPlace:
    """Some members of a zip file.

    Attributes:
        archive: the zip file.
        members: the path of each member as the student knows it, and the member.
        above: the path of the zip file itself.
    """

    archive: ZipFile = field(repr=False)
    members: tuple[tuple[PurePosixPath, ZipInfo], ...] = field(repr=False)
    above: PurePosixPath = field(default_factory=PurePosixPath)

    def walk(self) -> Iterator[Entry | Unseen]:
        """Yields the members that may hold an answer; folders have no entries of their own."""
        told = set()
        for path, member in self.members:
            unseen = self._unseen(path, member)
            if unseen is None and not member.is_dir():
                read = partial(archives.member_bytes, self.archive, member)
                yield Entry(self.above / path, read)
            elif unseen is not None and unseen not in told:  # a folder has many members
                told.add(unseen)
                yield unseen

    def _unseen(self, path: PurePosixPath, member: ZipInfo) -> Unseen | None:
        """Returns why a member is not looked into, if it is not."""
        folders = path.parts if member.is_dir() else path.parts[:-1]
        hidden = next((i for i, name in enumerate(folders, 1) if _hidden(name)), None)
        if hidden is not None:
            return Unseen(f"{self.above.joinpath(*folders[:hidden])}/", "", expected=True)
        if len(folders) > MOST_DEEP:
            return _too_deep(self.above.joinpath(*folders[: MOST_DEEP + 1]))
        if stat.S_ISLNK(member.external_attr >> 16):
            return Unseen(str(self.above / path), "a link")
        return None


def walk(place: Place) -> Iterator[Entry | Unseen]:
    """Yields what is in a place and in the zip files there, up to the limits of this file."""
    opened = itertools.count(1)
    for number, entry in enumerate(_walk_archives(place, 0, opened), 1):
        if number > MOST_ENTRIES:
            yield Unseen("", f"more than {MOST_ENTRIES} files; the rest was not read")
            return
        yield entry


def _walk_archives(place: Place, depth: int, opened: Iterator[int]) -> Iterator[Entry | Unseen]:
    for entry in place.walk():
        suffix = PurePosixPath(entry.path).suffix.lower()
        if isinstance(entry, Unseen) or entry.is_folder or suffix not in archives.SUFFIXES:
            yield entry
            if isinstance(entry, Entry) and suffix in OTHER_ARCHIVES:
                yield Unseen(str(entry.path), "of all archives, only zip files are opened")
        elif depth == MOST_NESTED:
            yield Unseen(str(entry.path), f"a zip file within {MOST_NESTED} others")
        elif next(opened) > MOST_ARCHIVES:
            yield Unseen(str(entry.path), f"more than {MOST_ARCHIVES} zip files")
        else:
            try:
                inside = _zipped_place(entry)
            except SubmissionError as error:
                by_machine = isinstance(error, UnreadableError)
                yield Unseen(str(entry.path), str(error), by_machine=by_machine)
                continue
            yield from _walk_archives(inside, depth + 1, opened)


def _zipped_place(entry: Entry) -> ZippedPlace:
    archive = archives.opened(entry.read(archives.MOST_BYTES))
    return ZippedPlace(archive, tuple(archives.members(archive)), entry.path)


def _walk_folder(directory: int, above: PurePosixPath) -> Iterator[Entry | Unseen]:
    """Yields what is in a folder that has been opened, and below it."""
    try:
        with os.scandir(directory) as entries:
            some = itertools.islice(entries, MOST_ENTRIES + 1)
            found = sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in some)
    except OSError as error:
        yield _closed(f"{above}/", f"cannot be read ({error.strerror})")
        return
    for name, is_folder, is_link in found:
        path = above / name
        yield Entry(path, partial(read_within, directory, name), is_folder)
        if is_link and not name.endswith(".py"):  # It may lead to a folder.
            yield Unseen(str(path), "a link")
        if is_folder:
            yield from _walk_subfolder(directory, name, path)


def _walk_subfolder(directory: int, name: str, path: PurePosixPath) -> Iterator[Entry | Unseen]:
    if _hidden(name):
        yield Unseen(f"{path}/", "", expected=True)
        return
    if len(path.parts) > MOST_DEEP:
        yield _too_deep(path)
        return
    try:
        below = os.open(name, _FOLDER, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_FOLDER:  # It was one a moment ago.
            yield Unseen(f"{path}/", "changed while it was read")
            return
        yield _closed(f"{path}/", f"cannot be opened ({error.strerror})")
        return
    try:
        yield from _walk_folder(below, path)
    finally:
        os.close(below)


def _hidden(name: str) -> bool:
    return name.startswith(".") or name in ("__pycache__", "__MACOSX")


def _too_deep(path: PurePosixPath) -> Unseen:
    return Unseen(f"{path}/", f"more than {MOST_DEEP} folders deep")


def _closed(path: str, why: str) -> Unseen:
    return Unseen(path, why, by_machine=True)
