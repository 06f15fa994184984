"""Replicas are on devices of their own, where there are enough, and all say the same."""

import jax
import numpy as np
import pytest

from jaxpar.model import Settings, init
from jaxpar.serve.engine import Request, Sizes
from jaxpar.serve.engines import devices_of, make_engines
from jaxpar.serve.text import Bytes
from jaxpar.serve.trained import Decoder
from tests.serve.decoders import collect

SIZES = Sizes(slots=2, context=32, chunk=8, page_size=4)


def test_devices() -> None:
    first = jax.devices()
    assert devices_of("serve", None, 2) == [[first[0]], [first[1]]]
    assert devices_of("serve", "tp=2", 3) == [first[:2], first[2:4], first[4:6]]
    assert len(devices_of("serve", None, len(first) + 1)) == len(first) + 1
    with pytest.raises(ValueError, match=f"need {2 * len(first)} devices"):
        devices_of("serve", "tp=2", len(first))
    with pytest.raises(ValueError, match="axis dp"):
        devices_of("serve", "dp=2", 1)


@pytest.mark.parametrize("mesh", [None, "tp=2"])
def test_every_replica_says_the_same(mesh: str | None) -> None:
    settings = Settings(layers=1, d_model=32, heads=2)
    params = jax.tree.map(np.asarray, init(settings, jax.random.key(0)))
    decoder = Decoder(settings, params, Bytes(), ())
    devices = devices_of("serve", mesh, 2)
    before = set(map(id, jax.live_arrays()))
    engines = make_engines(decoder, SIZES, devices)
    made = [array for array in jax.live_arrays() if id(array) not in before]
    assert set().union(*(array.devices() for array in made)) == {
        one for some in devices for one in some
    }
    found = []
    for engine in engines:
        engine.submit(Request("one", (1, 2, 3), 8))
        found.append(collect(engine)["one"])
    assert found[0] == found[1]
    assert len(found[0]) == 8
