"""Finds the students in a folder or zip file of submissions, also as a learning platform names it.

Known forms:

- one folder, or one zip file, for each student;
- Canvas: `lastfirst_LATE_userid_submissionid_file`, all files side by side;
- Moodle: a folder `Full Name_12345_assignsubmission_file_` for each student, or all files side by
  side with that before their names;
- Gradescope: a folder `submission_123456` for each submission, and `submission_metadata.yml`, which
  says whose each is.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol
from zipfile import ZipFile, ZipInfo

import yaml

from jaxpar.classroom import archives
from jaxpar.classroom.handin_entries import FilePlace, FolderPlace, Place, ZippedPlace
from jaxpar.classroom.handins import Work

METADATA = "submission_metadata.yml"
_CANVAS = re.compile(r"(?P<who>.+?)_(?P<late>LATE_)?(?P<user>\d+)_\d+_(?P<file>.+)")
_MOODLE = re.compile(
    r"(?P<who>.+_\d+)_assignsubmission_(?:file|onlinetext)(?:_(?P<file>.+)?)?", re.DOTALL
)
# Canvas adds the number of a resubmission to the name of a file.
_RESUBMITTED = re.compile(r"-\d{1,2}(?=\.\w+$)")


class Listing(Protocol):
    """What is at the top of a folder or zip file of submissions."""

    @property
    def names(self) -> Mapping[str, bool]:
        """Tells of each item by its name whether it is a folder."""
        ...

    def place(self, name: str, called: str) -> Place:
        """Returns an item as a part of a hand-in; a file is called so by its student."""
        ...

    def below(self, name: str) -> Listing:
        """Returns what is in a folder."""
        ...

    def read(self, name: str) -> bytes:
        """Returns the bytes of a file."""
        ...


@dataclass
class Submissions:
    """The students of a class.

    Attributes:
        works: each student's work, in the order of their names.
        unused: the names of what belongs to nobody.
    """

    works: list[Work] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)


@contextmanager
def submissions_in(path: Path) -> Iterator[Submissions]:
    """Gives the students of a folder or of a zip file, which stays open meanwhile.

    Raises:
        ValueError: there is no such folder or zip file, or no student in it.
    """
    if path.suffix.lower() in archives.SUFFIXES and path.is_file():
        try:
            archive = ZipFile(path)
        except archives.BROKEN:
            raise ValueError(f"grade: {path} is no zip file; download it again") from None
        with archive:
            yield _submissions(_ZipListing.of(archive), path)
        return
    try:
        found = _submissions(_FolderListing.of(path), path)
    except OSError as error:
        raise ValueError(
            f"grade: {path}: {error.strerror}; give a folder with one folder per student, or what "
            "Canvas, Moodle or Gradescope lets you download"
        ) from None
    yield found


def _submissions(top: Listing, path: Path) -> Submissions:
    top = _without_wrapping(top)
    owners = _gradescope_owners(top, path)
    found, places, late = Submissions(), {}, set()
    for name, is_folder in sorted(top.names.items()):
        if name.startswith(".") or name in (METADATA, "__MACOSX"):
            continue
        students, called, is_late = _whose(name, is_folder, owners)
        if not students:
            found.unused.append(name)
        for student in students:
            places.setdefault(student, []).append(top.place(name, called))
            if is_late:
                late.add(student)
    found.works = [
        Work(student, tuple(places[student]), student in late) for student in sorted(places)
    ]
    if not found.works:
        raise ValueError(
            f"grade: {path} holds no folders and no zip files; it must hold one per student, with "
            "that student's exercise files, or be what Canvas, Moodle or Gradescope lets you "
            "download"
        )
    return found


def _without_wrapping(top: Listing) -> Listing:
    """Returns what is in the one folder into which Gradescope puts everything."""
    names = [name for name in top.names if not name.startswith(".") and name != "__MACOSX"]
    if len(names) == 1 and top.names[names[0]]:
        inside = top.below(names[0])
        if METADATA in inside.names:
            return inside
    return top


def _whose(name: str, is_folder: bool, owners: dict[str, list[str]]) -> tuple[list[str], str, bool]:
    """Returns whose an item is, how its student calls it, and whether it is late."""
    if moodle := _MOODLE.fullmatch(name):
        return [moodle["who"]], moodle["file"] or name, False
    if is_folder:
        return owners.get(name, [name]), name, False
    if canvas := _CANVAS.fullmatch(name):
        called = _RESUBMITTED.sub("", canvas["file"])
        return [f"{canvas['who']}_{canvas['user']}"], called, bool(canvas["late"])
    student, suffix = os.path.splitext(name)
    return ([student] if suffix.lower() in archives.SUFFIXES else []), name, False


def _gradescope_owners(top: Listing, path: Path) -> dict[str, list[str]]:
    """Returns who submitted each folder, by the folder's name: email, number or name of each."""
    if top.names.get(METADATA) is not False:
        return {}
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        data = yaml.load(top.read(METADATA), loader)
        return {folder: _submitters(about) for folder, about in data.items()}
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(
            f"grade: {path}: {METADATA} is not what Gradescope writes; download it again, or "
            "remove it: then each student is called as their folder"
        ) from None


def _submitters(about: dict[str, Any]) -> list[str]:
    people = about[":submitters"]
    names = [str(p.get(":email") or p.get(":sid") or p[":name"]).strip() for p in people]
    return [name.replace("/", "_").lstrip(".") for name in names]


@dataclass(frozen=True)
class _FolderListing:
    """The top of a folder on the disk; a link there is a student's, and nobody follows it."""

    folder: Path
    names: dict[str, bool]

    @staticmethod
    def of(folder: Path) -> _FolderListing:
        with os.scandir(folder) as entries:
            return _FolderListing(
                folder, {e.name: e.is_dir(follow_symlinks=False) or e.is_symlink() for e in entries}
            )

    def place(self, name: str, called: str) -> Place:
        path = self.folder / name
        return FolderPlace(path) if self.names[name] else FilePlace(path, called)

    def below(self, name: str) -> Listing:
        return _FolderListing.of(self.folder / name)

    def read(self, name: str) -> bytes:
        return (self.folder / name).read_bytes()


@dataclass(frozen=True)
class _ZipListing:
    """The top of a zip file, or of a folder in it."""

    archive: ZipFile
    members: dict[str, list[tuple[PurePosixPath, ZipInfo]]]  # by the first name of their paths
    names: dict[str, bool]

    @staticmethod
    def of(archive: ZipFile) -> _ZipListing:
        return _ZipListing.from_members(archive, list(archives.members(archive)))

    @staticmethod
    def from_members(archive: ZipFile, members: list[tuple[PurePosixPath, ZipInfo]]) -> _ZipListing:
        grouped: dict[str, list[tuple[PurePosixPath, ZipInfo]]] = {}
        folders = {}
        for path, member in members:
            name, *rest = path.parts
            grouped.setdefault(name, []).append((PurePosixPath(*rest), member))
            is_folder = bool(rest) or member.is_dir() or stat.S_ISLNK(member.external_attr >> 16)
            folders[name] = folders.get(name, False) or is_folder
        return _ZipListing(archive, grouped, folders)

    def place(self, name: str, called: str) -> Place:
        members = self.members[name]
        if not self.names[name]:
            members = [(PurePosixPath(), members[0][1])]
        named = ((path if path.parts else PurePosixPath(called), m) for path, m in members)
        return ZippedPlace(self.archive, tuple(named))

    def below(self, name: str) -> Listing:
        inside = [(path, member) for path, member in self.members[name] if path.parts]
        return _ZipListing.from_members(self.archive, inside)

    def read(self, name: str) -> bytes:
        [(_, member)] = self.members[name]
        return archives.member_bytes(self.archive, member, archives.MOST_BYTES)
