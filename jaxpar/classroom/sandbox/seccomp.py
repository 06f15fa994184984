"""A filter of system calls that allows threads, files and memory, but no processes or sockets.

`enter` installs it in every confined process, on each level of isolation.

Source: seccomp(2), and Documentation/userspace-api/seccomp_filter.rst of Linux
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator

# Numbers of x86_64 and aarch64; None where there is no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # other processes: made, entered, read, signalled
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "tkill": (200, 130),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    # sockets of any kind
    "socket": (41, 198), "socketpair": (53, 199), "flock": (73, 32),
    # what Landlock leaves to the owner of a file, who may be the grader's user, too
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "lchown": (94, None), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469),
    "truncate": (76, 45), "inotify_init": (253, None), "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    # memory that no limit counts, or that outlives the process
    "memfd_create": (319, 279), "memfd_secret": (447, 447),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195),
    "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188), "msgctl": (71, 187),
    "semget": (64, 190), "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
    # ways round the filter, and into the kernel
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "personality": (135, 92),
    # namespaces and mounts
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430), "open_tree": (428, 428),
    "move_mount": (429, 429), "open_by_handle_at": (304, 265),
}  # fmt: skip
# Calls whose first argument is a process: it must be this one, or 0, which means the same.
OWN: dict[str, tuple[int, int]] = {
    "kill": (62, 129), "tgkill": (234, 131), "prlimit64": (302, 261),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
}  # fmt: skip
# Commands of fcntl: those that have signals sent to the owner of a descriptor, who may be any
# process; and locks, leases and notices, by which a process can hold up or inform others.
FCNTL, FCNTL_DENIED = (72, 25), (5, 6, 7, 8, 10, 15, 36, 37, 38, 1024, 1026)
CLONE, CLONE3 = (56, 220), 435
CLONE_THREAD = 0x10000
ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
X32 = 0x40000000  # the other way to call x86_64's kernel

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND = 0, 4, 16, 24  # offsets in struct seccomp_data
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_SET_MODE_FILTER, _TSYNC = 1, 1
_SECCOMP = (317, 277)
_NO_NEW_PRIVS = 38

Instruction = tuple[int, int, int, int]


def available() -> bool:
    """Tells whether there is a filter for this machine's processor."""
    return platform.machine() in ARCHITECTURES


def install() -> None:
    """Filters the system calls of this process and all its threads for good.

    Raises:
        OSError: the kernel refuses.
    """
    column, _ = ARCHITECTURES[platform.machine()]
    program = b"".join(struct.pack("HBBI", *line) for line in filter_program(os.getpid()))
    buffer = ctypes.create_string_buffer(program)
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs is refused")
    if libc.syscall(_SECCOMP[column], _SET_MODE_FILTER, _TSYNC, header):
        raise OSError(ctypes.get_errno(), "seccomp is refused")


def filter_program(pid: int) -> list[Instruction]:
    """Returns the filter for the process with this number."""
    column, architecture = ARCHITECTURES[platform.machine()]
    return [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        *([(_AT_LEAST, 0, 1, X32), _error(errno.ENOSYS)] if column == 0 else []),
        # A filter cannot see the flags of clone3; where it does not exist, glibc calls clone.
        *_if_number(CLONE3, [_error(errno.ENOSYS)]),
        *_if_number(CLONE[column], list(_threads_only())),
        *_if_number(FCNTL[column], list(_fcntl())),
        *(line for call in OWN.values() for line in _if_number(call[column], list(_own(pid)))),
        *(
            line
            for call in DENIED.values()
            if call[column] is not None
            for line in _if_number(call[column] or 0, [_error(errno.EPERM)])
        ),
        (_RETURN, 0, 0, _ALLOW),
    ]


def _if_number(number: int, then: list[Instruction]) -> Iterator[Instruction]:
    """Yields `then`, which must return, for the call of this number; other calls go on after it."""
    yield (_EQUAL, 0, len(then), number)
    yield from then


def _threads_only() -> Iterator[Instruction]:
    """Yields the check of clone's flags: it may start a thread, but no process."""
    yield (_LOAD, 0, 0, _FIRST)
    yield (_ANY_BIT, 1, 0, CLONE_THREAD)
    yield _error(errno.EPERM)
    yield (_RETURN, 0, 0, _ALLOW)


def _fcntl() -> Iterator[Instruction]:
    """Yields the check of fcntl's command."""
    yield (_LOAD, 0, 0, _SECOND)
    for command in FCNTL_DENIED:
        yield (_EQUAL, 0, 1, command)
        yield _error(errno.EPERM)
    yield (_RETURN, 0, 0, _ALLOW)


def _own(pid: int) -> Iterator[Instruction]:
    """Yields the check that the first argument is this process, or 0."""
    yield (_LOAD, 0, 0, _FIRST)
    yield (_EQUAL, 2, 0, pid)
    yield (_EQUAL, 1, 0, 0)
    yield _error(errno.EPERM)
    yield (_RETURN, 0, 0, _ALLOW)


def _error(number: int) -> Instruction:
    return (_RETURN, 0, 0, _ERROR | number)
