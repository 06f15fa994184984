"""The newest checkpoint that nothing is missing of, and in which nothing is damaged."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.long_run.checkpoint_layout import Files, newest_whole

Folders = Mapping[str, Files]
Found = dict[str, dict[str, tuple[int, int]]]


def _files(rng: np.random.Generator, processes: int) -> dict[str, tuple[int, int]]:
    """The files of so many processes, and one of the run; two of them have the same size."""
    names = [f"{name}.{p}.bin" for p in range(processes) for name in ("params", "optimizer")]
    size = int(rng.integers(1000, 9000))
    return {
        name: (size + place // 2, int(rng.integers(1, 2**32)))
        for place, name in enumerate([*names, "settings.json"])
    }


def _folders(rng: np.random.Generator) -> list[Call]:
    """Runs that end at each operation of a save; then one thing that is wrong with a checkpoint."""
    nine, ten = {"a.bin": (64, 900)}, {"a.bin": (64, 1000), "b.bin": (32, 77)}
    manifests = {"step_9": nine, "step_10": ten}
    calls: list[Call] = [
        (({"step_9": nine, "step_10": ten}, manifests), {}),
        (({"step_9": nine, "step_10": ten | {"b.bin": (32, 76)}}, manifests), {}),
        (({"step_9": nine, "step_10": ten}, {"step_9": nine}), {}),
    ]

    def tried(
        steps: list[int], *, damage: Callable[[str, Found, Found], None], of: int = 1
    ) -> None:
        """Damages the newest `of` checkpoints of these."""
        written = {f"step_{step}": _files(rng, int(rng.integers(2, 4))) for step in steps}
        found = {folder: dict(files) for folder, files in written.items()}
        manifests = {folder: dict(files) for folder, files in written.items()}
        for step in sorted(steps)[-of:] if of else []:
            damage(f"step_{step}", found, manifests)
        in_any_order = {folder: found[folder] for folder in rng.permutation(list(found)).tolist()}
        calls.append(((in_any_order, manifests), {}))

    def nothing(folder: str, found: Found, manifests: Found) -> None:
        pass

    def any_file(found: Found, folder: str) -> str:
        return list(found[folder])[int(rng.integers(len(found[folder])))]

    def byte_changed(folder: str, found: Found, manifests: Found) -> None:
        name = any_file(found, folder)
        size, crc = found[folder][name]
        found[folder][name] = size, crc ^ (1 << int(rng.integers(32)))

    def cut(folder: str, found: Found, manifests: Found) -> None:
        name = any_file(found, folder)
        size, _ = found[folder][name]
        found[folder][name] = int(rng.integers(size)), int(rng.integers(1, 2**32))

    def only_size(folder: str, found: Found, manifests: Found) -> None:
        name = any_file(found, folder)
        size, crc = found[folder][name]
        found[folder][name] = size + int(rng.choice((-1, 1))), crc

    def missing(folder: str, found: Found, manifests: Found) -> None:
        del found[folder][any_file(found, folder)]

    def of_process_1(folder: str, found: Found, manifests: Found) -> None:
        del found[folder]["optimizer.1.bin"]

    def exchanged(folder: str, found: Found, manifests: Found) -> None:
        """Two files that have the same size."""
        files = found[folder]
        one, other = "params.1.bin", "optimizer.1.bin"
        files[one], files[other] = files[other], files[one]

    def no_manifest(folder: str, found: Found, manifests: Found) -> None:
        del manifests[folder]

    def more(folder: str, found: Found, manifests: Found) -> None:
        found[folder] |= {"notes.txt": (7, 7), "params.0.bin.tmp": (12, 34)}

    def half_written(folder: str, found: Found, manifests: Found) -> None:
        """A whole folder under its temporary name."""
        found[f"{folder}.tmp"] = found.pop(folder)
        manifests[f"{folder}.tmp"] = manifests.pop(folder)

    def of_another_name(folder: str, found: Found, manifests: Found) -> None:
        number = folder.removeprefix("step_")
        names = [f"damaged_{folder}", f"step_0{number}", f"{folder}_old", "step_", "step_-1"]
        names += [number, f"step_+{number}", f"Step_{number}", f"save_{number}", f"step_{number} "]
        for name in [*names, f"step_{number}_0"]:
            found[name], manifests[name] = found[folder], manifests[folder]
        del found[folder], manifests[folder]

    def empty(folder: str, found: Found, manifests: Found) -> None:
        found[folder] = {}

    def gone(folder: str, found: Found, manifests: Found) -> None:
        """The folder is lost, and its manifest is not."""
        del found[folder]

    late = int(rng.integers(2**24, 2**40))
    runs = [[9, 10], [8, 9, 10, 100], [0, 5], [late, late + 1, late // 10]]
    for steps in runs:
        tried(steps, damage=nothing)
    calls.append((({}, {}), {}))
    tried([0], damage=nothing)
    tried([0, 5], damage=byte_changed)
    damages = [byte_changed, cut, only_size, missing, of_process_1, exchanged, no_manifest, more]
    damages += [half_written, of_another_name, empty, gone]
    for damage in damages:
        steps = sorted({int(n) for n in rng.integers(1, 3000, 6)})
        tried(steps, damage=damage)
        tried(steps, damage=damage, of=3)
        tried(steps[:2], damage=damage, of=2)
    # A manifest of no file is kept to by every folder; one of settings alone has no process.
    calls.append((({"step_3": {}, "step_2": {"a": (1, 2)}}, {"step_3": {}, "step_2": {}}), {}))
    return calls


CONTRACT = Contract(
    kind="value",
    task="return the step of the newest folder whose files are all that its manifest lists",
    reference=newest_whole,
    oracle=newest_whole,
    values=_folders,
    hints=(
        "Which folders are checkpoints at all, and which of two steps is newer: 9 or 10?",
        "Go through the steps from the largest number down, and return the first that is whole. It "
        "is whole if it has a manifest, and every file of that manifest is found with the same "
        "size and the same crc32.",
        "number = folder.removeprefix('step_') is that of a checkpoint if f'step_{number}' == "
        "folder, number.isdecimal() and str(int(number)) == number; all(found[folder].get(name) == "
        "written for name, written in manifests[folder].items()) says whether it is whole.",
    ),
    minimal="Each file must be read once to know its crc32: a size does not tell of changed bytes.",
    harder="Reading 10 TB takes minutes. Which of the files must one process check, if there are "
    "many, and how do all learn what it found?",
)


def _steps(folders: Folders) -> dict[int, str]:
    pattern = r"step_(0|[1-9][0-9]*)"
    return {int(name[5:]): name for name in folders if re.fullmatch(pattern, name)}


def _newest(
    found: Folders, manifests: Folders, whole: Callable[[Files, Files], bool]
) -> int | None:
    """The right search, by another rule for what is whole."""
    steps = _steps(found)
    for step in sorted(steps, reverse=True):
        folder = steps[step]
        if folder in manifests and whole(found[folder], manifests[folder]):
            return step
    return None


def _all_there(files: Files, manifest: Files) -> bool:
    return all(files.get(name) == written for name, written in manifest.items())


@wrong("values")
def newest_by_name(found: Folders, manifests: Folders) -> int | None:
    """You compare names as texts, for which step_9 is newer than step_10; compare numbers."""
    for folder in sorted(_steps(found).values(), reverse=True):
        if folder in manifests and _all_there(found[folder], manifests[folder]):
            return int(folder[5:])
    return None


@wrong("values")
def newest_as_listed(found: Folders, manifests: Folders) -> int | None:
    """You take the folder that is listed last; folders are listed in any order, so compare the
    numbers of their steps."""
    for folder in reversed(_steps(found).values()):
        if folder in manifests and _all_there(found[folder], manifests[folder]):
            return int(folder[5:])
    return None


@wrong("values")
def not_looked_into(found: Folders, manifests: Folders) -> int | None:
    """You take the newest folder, whatever is in it; compare its files with its manifest."""
    return max(_steps(found), default=None)


@wrong("values")
def manifest_is_enough(found: Folders, manifests: Folders) -> int | None:
    """You take the newest folder that has a manifest; a file may have been damaged since, so
    compare all of them."""
    return _newest(found, manifests, lambda files, manifest: True)


@wrong("values")
def names_only(found: Folders, manifests: Folders) -> int | None:
    """You look whether all files are there; compare their sizes and their crc32 as well."""
    return _newest(found, manifests, lambda files, manifest: manifest.keys() <= files.keys())


@wrong("values")
def size_only(found: Folders, manifests: Folders) -> int | None:
    """You compare sizes only; a changed byte leaves the size as it was, and the crc32 tells."""
    return _newest(
        found,
        manifests,
        lambda files, manifest: all(
            name in files and files[name][0] == size for name, (size, _) in manifest.items()
        ),
    )


@wrong("values")
def crc_only(found: Folders, manifests: Folders) -> int | None:
    """You compare the crc32 only; compare the size as well, since files of different sizes can have
    the same crc32."""
    return _newest(
        found,
        manifests,
        lambda files, manifest: all(
            name in files and files[name][1] == crc for name, (_, crc) in manifest.items()
        ),
    )


@wrong("values")
def one_process_only(found: Folders, manifests: Folders) -> int | None:
    """You look at the files of one process; the manifest lists those of all."""

    def whole(files: Files, manifest: Files) -> bool:
        return all(
            files.get(name) == written for name, written in manifest.items() if ".0." in name
        )

    return _newest(found, manifests, whole)


@wrong("values")
def found_files_compared(found: Folders, manifests: Folders) -> int | None:
    """You look whether each file that is found is in the manifest; a file may be missing, so look
    whether each file of the manifest is found."""

    def whole(files: Files, manifest: Files) -> bool:
        return all(manifest.get(name, known) == known for name, known in files.items())

    return _newest(found, manifests, whole)


@wrong("values")
def other_files_refused(found: Folders, manifests: Folders) -> int | None:
    """You refuse a folder that holds more than its manifest lists; other files do not matter."""
    return _newest(found, manifests, lambda files, manifest: dict(files) == dict(manifest))


@wrong("values")
def fingerprints_without_names(found: Folders, manifests: Folders) -> int | None:
    """You compare the sizes and crc32 without the names; two files may have been exchanged."""

    def whole(files: Files, manifest: Files) -> bool:
        return {*manifest.values()} <= {*files.values()}

    return _newest(found, manifests, whole)


@wrong("values")
def stops_at_a_damaged_one(found: Folders, manifests: Folders) -> int | None:
    """You give up where the newest checkpoint is damaged; go on with the one before."""
    newest = max(_steps(found), default=None)
    return newest if newest == newest_whole(found, manifests) else None


@wrong("values")
def one_before_a_damaged_one(found: Folders, manifests: Folders) -> int | None:
    """Where the newest is damaged you take the one before without a look; that may be damaged
    too."""
    steps = sorted(_steps(found), reverse=True)
    if not steps or steps[0] == newest_whole(found, manifests):
        return steps[0] if steps else None
    return steps[1] if len(steps) > 1 else None


@wrong("values")
def no_manifest_is_whole(found: Folders, manifests: Folders) -> int | None:
    """You take a folder without a manifest for whole; the manifest is written last, so the save was
    not completed."""
    steps = _steps(found)
    for step in sorted(steps, reverse=True):
        if _all_there(found[steps[step]], manifests.get(steps[step], {})):
            return step
    return None


@wrong("values")
def temporary_folders_taken(found: Folders, manifests: Folders) -> int | None:
    """You take temporary folders, or those of another name that has a number in it; the name must
    be step_N, and nothing else."""
    numbers = {name: re.search(r"step_(\d+)", name) for name in found}
    steps = {name: int(match[1]) for name, match in numbers.items() if match}
    for folder in sorted(steps, key=lambda name: steps[name], reverse=True):
        if folder in manifests and _all_there(found[folder], manifests[folder]):
            return steps[folder]
    return None


@wrong("values")
def zero_for_none(found: Folders, manifests: Folders) -> int:
    """You return 0 where no checkpoint is whole; 0 may be a step, so return None."""
    return newest_whole(found, manifests) or 0


@wrong("values")
def none_for_zero(found: Folders, manifests: Folders) -> int | None:
    """Where only the checkpoint of step 0 is whole you return None; `or` takes 0 for nothing, so
    compare with None."""
    return newest_whole(found, manifests) or None


@wrong("values")
def raises_for_none(found: Folders, manifests: Folders) -> int:
    """Where no checkpoint is whole you raise an error; return None, and the run begins anew."""
    step = newest_whole(found, manifests)
    if step is None:
        raise ValueError("newest_whole: no checkpoint is whole")
    return step
