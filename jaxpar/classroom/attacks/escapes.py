"""Tries to start, steer and reach other processes, by group and name."""

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
        started = []
        try:
            for _ in range(1500):
                started.append(threading.Thread(target=enough.wait, daemon=True))
                started[-1].start()
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
KERNEL = {
    "processes": PROCESSES,
    "kernel": KERNEL_CALLS,
    "resources": RESOURCES,
    "network": NETWORK,
}
