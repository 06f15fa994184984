"""The disk store: shards are read as written, each once, and a half-written state never."""

import gc
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jax.sharding import NamedSharding

from jaxpar.mesh import make_mesh
from jaxpar.parallel.disk import DiskStore

P = jax.P
ROOT = Path(__file__).parents[2]
MESH = "dp=2,fsdp=3"
LAYOUTS = [P(), P("dp"), P("fsdp", "dp"), P(None, ("dp", "fsdp"))]


def leaf_of(layout: P, dtype: str = "float32", shape: tuple[int, ...] = (6, 12)) -> Array:
    values = np.random.default_rng(7).normal(size=shape) * 100
    return jax.device_put(jnp.asarray(values, dtype), NamedSharding(make_mesh(MESH), layout))


def like(leaf: Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)


def next_run(folder: Path) -> DiskStore:
    gc.collect()  # an exception may still hold objects of the run before
    return DiskStore(folder)


def written(folder: Path) -> int:
    """The bytes of all leaves in a folder."""
    return sum(path.stat().st_size for path in folder.glob("process-0/[0-9]*"))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_a_leaf_is_read_as_it_was_written(layout: P, dtype: str, tmp_path: Path) -> None:
    leaf, store = leaf_of(layout, dtype), DiskStore(tmp_path)
    store.put("0.0", leaf)
    read = store.get("0.0", like(leaf))
    assert read.sharding == leaf.sharding and read.dtype == leaf.dtype
    np.testing.assert_array_equal(read, leaf)
    assert written(tmp_path) == leaf.nbytes  # however many devices hold each part


def test_a_scalar_is_a_leaf_too(tmp_path: Path) -> None:
    leaf, store = leaf_of(P(), "int32", ()), DiskStore(tmp_path)
    store.put("0.0", leaf)
    assert store.get("0.0", like(leaf)) == leaf
    assert written(tmp_path) == 4


def test_what_was_read_stays_when_the_file_changes(tmp_path: Path) -> None:
    leaf, store = leaf_of(P("dp")), DiskStore(tmp_path)
    store.put("0.0", leaf)
    read = store.get("0.0", like(leaf))
    store.put("0.0", leaf + 1)
    np.testing.assert_array_equal(read, leaf)
    np.testing.assert_array_equal(store.get("0.0", like(leaf)), leaf + 1)
    assert written(tmp_path) == leaf.nbytes


def test_a_sealed_state_is_found_by_the_next_run(tmp_path: Path) -> None:
    leaf, store = leaf_of(P("dp")), DiskStore(tmp_path)
    store.put("0.0", leaf)
    store.seal()
    del store
    np.testing.assert_array_equal(next_run(tmp_path).get("0.0", like(leaf)), leaf)


@pytest.mark.parametrize("steps_before", [0, 2])
def test_a_state_written_by_half_is_refused(steps_before: int, tmp_path: Path) -> None:
    """The run ends after the first of two leaves."""
    leaf, store = leaf_of(P("dp")), DiskStore(tmp_path)
    for _ in range(steps_before):
        store.put("0.0", leaf)
        store.put("0.1", leaf)
        store.seal()
    store.put("0.0", leaf + 1)
    del store
    for key in ("0.0", "0.1"):
        with pytest.raises(ValueError, match="holds no complete state: a run ended"):
            next_run(tmp_path).get(key, like(leaf))
    again = next_run(tmp_path)  # but a new run may begin
    again.put("0.0", leaf)
    np.testing.assert_array_equal(again.get("0.0", like(leaf)), leaf)


@pytest.mark.parametrize(
    "other",
    [leaf_of(P("fsdp")), leaf_of(P("dp"), "bfloat16"), leaf_of(P("dp"), shape=(12, 6))],
    ids=["layout", "dtype", "shape"],
)
def test_another_leaf_than_the_one_written_is_refused(other: Array, tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    store.put("0.0", leaf_of(P("dp")))
    with pytest.raises(ValueError, match=r"leaf 0.0 in .* is .*'float32'.*this run wants"):
        store.get("0.0", like(other))


def test_a_file_cut_short_is_told(tmp_path: Path) -> None:
    leaf, store = leaf_of(P("dp")), DiskStore(tmp_path)
    store.put("0.0", leaf)
    os.truncate(tmp_path / "process-0" / "0.0", leaf.nbytes - 1)
    with pytest.raises(ValueError, match=r"offload: cannot read .*process-0: mmap length"):
        store.get("0.0", like(leaf))


def test_a_seal_that_is_no_seal_is_told(tmp_path: Path) -> None:
    (tmp_path / "process-0").mkdir()
    (tmp_path / "process-0" / "sealed.json").write_text("{")
    with pytest.raises(ValueError, match=r"offload: cannot read .*process-0: Expecting"):
        DiskStore(tmp_path)


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        ValueError, match=r"cannot use .*process-0: Not a directory; give a writable"
    ):
        DiskStore(tmp_path / "file")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has a disk that is always full")
def test_a_full_disk_is_told_and_breaks_the_seal(tmp_path: Path) -> None:
    leaf, store = leaf_of(P("dp")), DiskStore(tmp_path)
    store.put("0.0", leaf)
    store.seal()
    (tmp_path / "process-0" / "0.0").unlink()
    (tmp_path / "process-0" / "0.0").symlink_to("/dev/full")
    line = rf"cannot write {leaf.nbytes} bytes to .*process-0: No space left on device; give a w"
    with pytest.raises(ValueError, match=line):
        store.put("0.0", leaf)
    with pytest.raises(ValueError, match="holds no complete state"):
        store.get("0.0", like(leaf))
    del store
    with pytest.raises(ValueError, match="holds no complete state"):
        next_run(tmp_path).get("0.0", like(leaf))


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such locks")
def test_two_runs_do_not_share_a_folder(tmp_path: Path) -> None:
    store = DiskStore(tmp_path)
    with pytest.raises(ValueError, match="process-0 is in use by another run"):
        DiskStore(tmp_path)
    del store
    next_run(tmp_path)


PROCESS = """
import sys
from pathlib import Path
import jax, numpy as np
from jax.sharding import NamedSharding
from jaxpar.mesh import make_mesh
from jaxpar.parallel.disk import DiskStore
from jaxpar.parallel.offload import HostStore, OffloadedState
import optax

folder, address, rank = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(address, 2, rank)
sharding = NamedSharding(make_mesh("dp=4"), jax.P("dp"))
whole = np.arange(32, dtype=np.float32).reshape(8, 4)
params = {"w": jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])}
optimizer = optax.sgd(0.1, momentum=0.9)
init = jax.jit(optimizer.init, out_shardings=sharding)

@jax.jit
def update(gradients, state, params):
    updates, state = optimizer.update(gradients, state, params)
    return optax.apply_updates(params, updates), state

def parts(tree):
    leaves = jax.tree.leaves(tree)
    return [np.asarray(shard.data) for leaf in leaves for shard in leaf.addressable_shards]

disk = OffloadedState(DiskStore(folder), init, params)
host = OffloadedState(HostStore(), init, params)
for _ in range(2):
    one, moved = disk.update(update, params, params)
    other, _ = host.update(update, params, params)
    np.testing.assert_array_equal(parts(one), parts(other))
    assert moved.to_store_bytes == whole.nbytes // 4, moved
np.testing.assert_array_equal(parts(disk.load()), parts(host.load()))
np.testing.assert_allclose(parts(disk.load()), [1.9 * part for part in parts(params)], rtol=1e-6)

del disk
store = DiskStore(folder)
disk = OffloadedState(store, init, params, resume=True)
np.testing.assert_array_equal(parts(disk.load()), parts(host.load()))
if rank == 1:  # as if process 0 had ended before it wrote this step
    store.put("0.0", params["w"])
    store.seal()
del store, disk
try:
    OffloadedState(DiskStore(folder), init, params, resume=True)
except ValueError as error:
    print(error)
"""


def test_each_of_two_processes_has_files_of_its_own(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, "-c", PROCESS, str(tmp_path), address]
    started = [
        subprocess.Popen([*command, str(rank)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    told = [process.communicate(timeout=120)[0] for process in started]
    assert [process.returncode for process in started] == [0, 0]
    assert all("the processes hold states of different steps, [3, 4], in" in one for one in told)
