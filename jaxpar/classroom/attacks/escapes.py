"""Attempts to leave the sandbox: one file makes all of them, and prints what it reached."""

from __future__ import annotations

import textwrap

from jaxpar.classroom.attacks.attack import COORDINATES, UNFENCED, VALUE, VALUE_POINTS, Attack

REACHED = "REACHED "
TOOLS = """
ctypes, socket, resource = load("ctypes"), load("socket"), load("resource")
threading, subprocess, signal, time = map(load, ("threading", "subprocess", "signal", "time"))
libc = ctypes.CDLL(None, use_errno=True)
OTHERS = {JUDGE, os.getppid()} - {os.getpid()}

def call(name, *arguments):
    number = CALLS[name]
    return number is not None and libc.syscall(number, *arguments) >= 0

def one_of(attempt, things):
    for thing in things:
        try:
            if attempt(thing):
                return True
        except Exception:
            pass
    return False

def attempt(name, action):
    try:
        reached = action()
    except BaseException:
        reached = False
    if reached:
        print(REACHED + name, flush=True)
"""

READING = {
    "read another submission": 'return open(f"{BAIT}/students/other.py").read()',
    "read the secret": 'return open(f"{BAIT}/course.secret").read()',
    "list the journal": 'return os.listdir(f"{BAIT}/journal")',
    "read the file of passwords": 'return open("/etc/passwd").read()',
    "list home folders": 'return one_of(os.listdir, ["/root", "/home"])',
    "list the folder of temporary files of others": "return os.listdir(os.path.dirname(BAIT))",
    "read the reference's source": """
        path = os.path.join(LIBRARY, "mesh.py")
        return open(path).read()
    """,
    "read a contract": 'return os.listdir(os.path.join(LIBRARY, "contracts"))',
    "import the reference": 'return load("jaxpar.collectives.reductions").collectives',
    "import a contract": 'return load("jaxpar.contracts.devices").contracts',
    "find the reference in memory": """
        functions = [o for o in gc.get_objects() if type(o) is type(call)]
        return any(f.__name__ == "device_coordinates" and f.__module__ == "jaxpar.mesh"
                   and "divmod" in f.__code__.co_names for f in functions)
    """,
    "find the oracle or the seed in frames": """
        frame, seen = sys._getframe(), []
        while frame:
            seen += [str(name) for name in frame.f_locals]
            job = frame.f_locals.get("job")
            seen += getattr(type(job), "__dataclass_fields__", ())
            frame = frame.f_back
        return any(word in name for name in seen for word in ("seed", "oracle", "secret", "expect"))
    """,
    "find a contract in sys.modules": """
        return any(name.startswith("jaxpar.contracts.") and name.split(".")[2] != "case"
                   for name in sys.modules)
    """,
    "read the environment of the judge": """
        pids = {p for p in os.listdir("/proc") if p.isdigit()} - {str(os.getpid())}
        return one_of(lambda pid: open(f"/proc/{pid}/environ").read(1), pids)
    """,
    "find the judge's environment in one's own": "return TOKEN in str(dict(os.environ))",
    "read the memory of the judge through /proc": """
        return one_of(lambda pid: open(f"/proc/{pid}/mem", "rb"), OTHERS)
    """,
    "read the maps of the judge": """
        return one_of(lambda pid: open(f"/proc/{pid}/maps").read(1), OTHERS)
    """,
    "read the command line of the judge": """
        return one_of(lambda pid: open(f"/proc/{pid}/cmdline").read(1), {JUDGE} - {os.getpid()})
    """,
    "list the processes of others": """
        return len([p for p in os.listdir("/proc") if p.isdigit()]) > 3
    """,
    "use a descriptor that was left open": """
        load("stat")
        stat, found = sys.modules["stat"], []
        for number in range(1024):
            try:
                mode = os.fstat(number).st_mode
            except OSError:
                continue
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISSOCK(mode):
                found.append(number)
        return found
    """,
}
WRITING = {
    "write a result": 'return open(f"{BAIT}/open/anna.json", "w")',
    "write over a file of the grader's user": 'return open(f"{BAIT}/mine", "w")',
    "write into the library": 'return open(os.path.join(LIBRARY, "planted.py"), "w")',
    "poison the bytecode of jax": """
        folder = os.path.dirname(load("jax").__file__)
        os.makedirs(f"{folder}/__pycache__", exist_ok=True)
        return open(f"{folder}/__pycache__/planted.pyc", "w")
    """,
    "plant a module that Python runs at its start": """
        folders = [p for p in sys.path if p.endswith("packages")]
        return one_of(lambda f: open(f"{f}/sitecustomize.py", "w"), folders)
    """,
    "shadow jax in the working folder": 'return open("jax.py", "w") and os.getcwd() != "/tmp"',
    "poison the cache of compiled programs": """
        if not os.path.exists(f"{BAIT}/open"):
            return False
        jax = load("jax")
        jax.config.update("jax_compilation_cache_dir", f"{BAIT}/open/cache")
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        jax.jit(lambda x: x + 1)(1.0)
        return os.path.exists(f"{BAIT}/open/cache")
    """,
    "write to shared memory": 'return open("/dev/shm/planted", "w")',
    "write to /var/tmp": 'return open("/var/tmp/planted", "w")',
    "remove a file": 'os.unlink(f"{BAIT}/mine"); return True',
    "rename a file": 'os.rename(f"{BAIT}/mine", f"{BAIT}/open/yours"); return True',
    "empty a file": 'os.truncate(f"{BAIT}/mine", 0); return True',
    "change the mode of a file": 'os.chmod(f"{BAIT}/mine", 0o777); return True',
    "change the times of a file": 'os.utime(f"{BAIT}/mine", (1, 1)); return True',
    "change the owner of a file": """
        os.chown(f"{BAIT}/mine", os.getuid(), os.getgid())
        return True
    """,
    "set an attribute of a file": 'os.setxattr(f"{BAIT}/mine", "user.x", b"1"); return True',
    "make a hard link": 'os.link(f"{BAIT}/mine", f"{BAIT}/open/link"); return True',
    "make a symbolic link": 'os.symlink("/etc/passwd", f"{BAIT}/open/link"); return True',
    "make a FIFO": 'os.mkfifo(f"{BAIT}/open/fifo"); return True',
    "watch a folder": """
        return libc.inotify_add_watch(libc.inotify_init(), f"{BAIT}/open".encode(), 0xFFF) >= 0
    """,
}
PROCESSES = {
    "fork": """
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        return pid
    """,
    "fork by clone": """
        pid = libc.syscall(CALLS["clone"], 17, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        return pid > 0
    """,
    "fork bomb": """
        for _ in range(40):
            pid = os.fork()
            if pid == 0:
                time.sleep(1)
                os._exit(0)
        return True
    """,
    "a child that outlives in a session of its own": """
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(9)"],
                         start_new_session=True)
        return True
    """,
    "spawn a shell": 'return os.posix_spawn("/bin/sh", ["sh", "-c", "exit"], {})',
    "system": 'return os.system("true") == 0',
    "more threads than there may be": """
        enough = threading.Event()
        try:
            for _ in range(1500):
                # Thread.start waits for ever for a thread that finds no memory to begin in.
                load("_thread").start_new_thread(enough.wait, ())
        finally:
            enough.set()
        return True
    """,
    "signal the judge": "return one_of(lambda pid: os.kill(pid, 0) is None, OTHERS)",
    "signal everybody": "return os.kill(-1, 0) is None",
    "signal a thread of the judge": 'return one_of(lambda p: call("tgkill", p, p, 0), OTHERS)',
    "queue a signal for the judge": """
        return one_of(lambda p: call("rt_sigqueueinfo", p, 0, bytes(128)), OTHERS)
    """,
    "signal the judge by a descriptor": """
        fcntl, ends = load("fcntl"), os.pipe()
        return one_of(lambda p: fcntl.fcntl(ends[0], 8, p) == 0, OTHERS)
    """,
    "signal the judge by a descriptor, asked in another way": """
        fcntl, struct, ends = load("fcntl"), load("struct"), os.pipe()
        return one_of(lambda p: fcntl.fcntl(ends[0], 15, struct.pack("ii", 1, p)), OTHERS)
    """,
    "signal the judge by a socket": """
        fcntl, ends = load("fcntl"), socket.socketpair()
        return one_of(lambda p: fcntl.ioctl(ends[0], 0x8901, p.to_bytes(4, "little")), OTHERS)
    """,
    "open the judge as a descriptor": "return one_of(os.pidfd_open, OTHERS)",
    "trace the judge": "return one_of(lambda pid: libc.ptrace(16, pid, 0, 0) == 0, OTHERS)",
    "read the memory of the judge": """
        vector = (ctypes.c_size_t * 2)(id(call), 8)
        def read(pid):
            done = libc.process_vm_readv(pid, vector, 1, (ctypes.c_size_t * 2)(4096, 8), 1, 0)
            return done >= 0 or ctypes.get_errno() == 14  # a bad address, but allowed
        return one_of(read, OTHERS)
    """,
    "slow the judge down": """
        return one_of(lambda p: os.setpriority(os.PRIO_PROCESS, p, 19) is None, OTHERS)
    """,
    "pin the judge to one core": """
        return one_of(lambda p: os.sched_setaffinity(p, {0}) is None, OTHERS)
    """,
    "limit the judge": """
        return one_of(lambda p: resource.prlimit(p, resource.RLIMIT_CPU, (1, 1)), OTHERS)
    """,
    "become root": "os.setuid(0); return os.getuid() == 0",
}
KERNEL_CALLS = {
    "enter namespaces of one's own": "return libc.unshare(0x10000000 | 0x20000) == 0",
    "mount": 'return libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0',
    "change the root": 'os.chroot("/"); return True',
    "io_uring": 'return call("io_uring_setup", 8, ctypes.create_string_buffer(256))',
    "bpf": 'return call("bpf", 0, ctypes.create_string_buffer(256), 72)',
    "performance counters": """
        return call("perf_event_open", ctypes.create_string_buffer(128), 0, -1, -1, 0)
    """,
    "userfaultfd": 'return call("userfaultfd", 1)',
    "keys of the kernel": """
        return call("add_key", b"user", b"planted", b"x", 1, -3) or call("keyctl", 0, -3, 1)
    """,
    "personality": 'return call("personality", 0x0040000)',
    "open by handle": """
        return call("open_by_handle_at", -100, bytes(64), 0) or ctypes.get_errno() != 1
    """,
}
RESOURCES = {
    "memory that is a file": 'return os.memfd_create("x")',
    "memory that outlives the process": 'return call("shmget", 0x5afe, 4096, 0o1666)',
    "messages that outlive the process": 'return call("msgget", 0x5afe, 0o1666)',
    "make others wait for a file": """
        return load("fcntl").fcntl(os.open(load("jax").__file__, os.O_RDONLY), 1024, 0) == 0
    """,
    "tell others by the lock of a file": """
        return load("fcntl").flock(os.open(load("jax").__file__, os.O_RDONLY), 2 | 4) is None
    """,
    "tell others by the lock of a byte": """
        file = open(load("jax").__file__)
        return load("fcntl").lockf(file, 1 | 4, 1) is None
    """,
    "raise the limits": """
        limit = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(resource.RLIMIT_AS, (2 * limit, 2 * limit))
        return True
    """,
    "core dumps": """
        resource.setrlimit(resource.RLIMIT_CORE, (1 << 20, 1 << 20))
        return True
    """,
    "memory in pipes": """
        fcntl, ends, held = load("fcntl"), [], 0
        try:
            for _ in range(400):
                ends += os.pipe()
                held += fcntl.fcntl(ends[-1], 1031, 1 << 20)
        except OSError:
            pass
        for end in ends:
            os.close(end)
        return held > 256 << 20
    """,
    "descriptors without end": """
        ends = []
        try:
            for _ in range(1000):
                ends.append(os.open("/dev/null", os.O_RDONLY))
            return True
        finally:
            for end in ends:
                os.close(end)
    """,
    "fill the disk": """
        def fill(folder):
            with open(f"{folder}/flood", "wb", buffering=0) as file:
                for _ in range(64):
                    file.write(bytes(1 << 20))
            return True
        return one_of(fill, [f"{BAIT}/open", "/tmp", "/var/tmp", "/dev/shm", os.getcwd()])
    """,
}
NETWORK = {
    "connect by TCP": 'return socket.create_connection(("127.0.0.1", PORT), 2)',
    "connect by TCP over IPv6": "return socket.socket(socket.AF_INET6, socket.SOCK_STREAM)",
    "send by UDP": """
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", PORT))
    """,
    "listen": 'return socket.create_server(("127.0.0.1", 0))',
    "connect to a local service": """
        pipe = socket.socket(socket.AF_UNIX)
        pipe.connect("\\0" + TOKEN)
        return pipe
    """,
    "ask the kernel by netlink": "return socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "raw packets": "return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
}
GROUPS = {
    "reading": READING,
    "writing": WRITING,
    "processes": PROCESSES,
    "kernel": KERNEL_CALLS,
    "resources": RESOURCES,
    "network": NETWORK,
}


def _source_of(attempts: dict[str, str]) -> str:
    """Returns a file that makes all attempts: each as a function that is called at once."""
    parts = [
        f"def action():\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}\n"
        f"attempt({name!r}, action)\n"
        for name, body in attempts.items()
    ]
    return f"{UNFENCED}{TOOLS}REACHED = {REACHED!r}\n" + "\n".join(parts) + COORDINATES


_SOURCE = _source_of({name: body for group in GROUPS.values() for name, body in group.items()})
ESCAPES = tuple(
    Attack(name, group, _SOURCE, ("pass",), VALUE_POINTS, VALUE)
    for group, attempts in GROUPS.items()
    for name in attempts
)
