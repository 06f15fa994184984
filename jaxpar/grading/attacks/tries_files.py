"""Tries to read and write what is not the submission's own, by group and name."""

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
FILES = {"reading": READING, "writing": WRITING}
