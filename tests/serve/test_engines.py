"""Replicas are on devices of their own, where there are enough, and all say the same."""

import jax
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxpar.model import Settings, init
from jaxpar.serve.engine import Request, Sizes
from jaxpar.serve.engines import make_engines, meshes_of
from jaxpar.serve.text import Bytes
from jaxpar.serve.trained import TrainedModel
from tests.serve.decoders import collect

SIZES = Sizes(slots=2, context=32, chunk=8, page_size=4)


def taken(meshes: list[Mesh]) -> list[list[jax.Device]]:
    return [list(mesh.devices.flat) for mesh in meshes]


def test_devices() -> None:
    first = jax.devices()
    assert taken(meshes_of("serve", None, 2)) == [[first[0]], [first[1]]]
    three = meshes_of("serve", "cp=2,tp=2", 3)
    assert taken(three) == [first[:4], first[4:8], first[8:12]]
    assert dict(three[2].shape) == {"cp": 2, "tp": 2}
    assert len(meshes_of("serve", None, len(first) + 1)) == len(first) + 1
    with pytest.raises(ValueError, match=f"need {2 * len(first)} devices"):
        meshes_of("serve", "tp=2", len(first))
    with pytest.raises(ValueError, match="axis dp"):
        meshes_of("serve", "dp=2", 1)


@pytest.mark.parametrize("mesh", [None, "tp=2"])
def test_every_replica_says_the_same(mesh: str | None) -> None:
    settings = Settings(layers=1, d_model=32, heads=2)
    params = jax.tree.map(np.asarray, init(settings, jax.random.key(0)))
    decoder = TrainedModel(settings, params, Bytes(), ())
    meshes = meshes_of("serve", mesh, 2)
    before = set(map(id, jax.live_arrays()))
    engines = make_engines(decoder, SIZES, meshes)
    made = [array for array in jax.live_arrays() if id(array) not in before]
    assert set().union(*(array.devices() for array in made)) == {
        one for some in taken(meshes) for one in some
    }
    found = []
    for engine in engines:
        engine.submit(Request("one", (1, 2, 3), 8))
        found.append(collect(engine)["one"])
    assert found[0] == found[1]
    assert len(found[0]) == 8
