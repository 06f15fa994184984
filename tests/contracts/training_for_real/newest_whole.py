"""Answers to newest_whole: right ones by other routes, and wrong ones."""

from __future__ import annotations

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _step(folder):
    number = folder[len("step_") :]
    named = folder.startswith("step_") and number.isascii() and number.isdigit()
    return int(number) if named and number == str(int(number)) else None


@right
def largest_of_those_that_are_whole(found, manifests):
    whole = [
        _step(folder)
        for folder in found.keys() & manifests.keys()
        if _step(folder) is not None and manifests[folder].items() <= found[folder].items()
    ]
    return max(whole, default=None)


@right
def one_by_one(found, manifests):
    newest = None
    for folder, manifest in manifests.items():
        step = _step(folder)
        if step is None or folder not in found or (newest is not None and step < newest):
            continue
        damaged = [name for name in manifest if found[folder].get(name) != manifest[name]]
        newest = newest if damaged else step
    return newest


@wrong("values")
def by_length_then_name(found, manifests):
    """Right for numbers, but temporary names are the longest."""
    for folder in sorted(found, key=lambda name: (len(name), name), reverse=True):
        if folder in manifests and manifests[folder].items() <= found[folder].items():
            return _step(folder)
    return None


@wrong("values")
def sum_of_sizes(found, manifests):
    def total(files):
        return sum(size for size, _ in files.values())

    steps = [f for f in found if _step(f) is not None and f in manifests]
    whole = [_step(f) for f in steps if total(found[f]) == total(manifests[f])]
    return max(whole, default=None)


@wrong("values")
def count_of_files(found, manifests):
    steps = [f for f in found if _step(f) is not None and f in manifests]
    return max((_step(f) for f in steps if len(found[f]) >= len(manifests[f])), default=None)


@wrong("values")
def checksums_of_params_only(found, manifests):
    def whole(folder):
        return all(
            found[folder].get(name) == written
            for name, written in manifests[folder].items()
            if name.startswith("params")
        )

    steps = [f for f in found if _step(f) is not None and f in manifests]
    return max((_step(f) for f in steps if whole(f)), default=None)


@wrong("values")
def last_two_only(found, manifests):
    steps = sorted((s for s in map(_step, found) if s is not None), reverse=True)[:2]
    folders = {f"step_{s}": s for s in steps}
    whole = [
        s for f, s in folders.items() if f in manifests and manifests[f].items() <= found[f].items()
    ]
    return max(whole, default=None)


@wrong("values")
def any_digits(found, manifests):
    """Takes step_007, too."""
    whole = [
        int(f[5:])
        for f in found
        if f[5:].isdigit() and f in manifests and manifests[f].items() <= found[f].items()
    ]
    return max(whole, default=None)
