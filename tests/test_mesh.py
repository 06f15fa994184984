"""Meshes, simulated devices, and layouts that are written as strings."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding

from jaxpar import axes, mesh

P = jax.P

axis_sizes = st.dictionaries(st.sampled_from(axes.AXES), st.integers(1, 3), max_size=4).filter(
    lambda sizes: math.prod(sizes.values()) <= 16
)


class TestSimulateDevices:
    def test_enough_is_left_alone(self) -> None:
        before = jax.devices()
        mesh.simulate_devices(3)
        assert jax.devices() == before

    def test_too_late_for_more(self) -> None:
        count = len(jax.devices())
        message = rf"simulate_devices: {count + 1} devices .* with {count}; call it before"
        with pytest.raises(ValueError, match=message):
            mesh.simulate_devices(count + 1)


class TestMesh:
    @given(axis_sizes.filter(len))
    def test_what_is_written_is_read(self, sizes: dict[str, int]) -> None:
        text = ",".join(f"{axis}={size}" for axis, size in sizes.items())
        assert list(mesh.parse_mesh(text).items()) == list(sizes.items())

    @given(st.text(alphabet="dpt=,12 0-", max_size=12))
    def test_text_is_a_mesh_or_a_clear_error(self, text: str) -> None:
        try:
            sizes = mesh.parse_mesh(text)
        except ValueError as error:
            assert str(error).startswith("parse_mesh: ")
        else:
            assert sizes and min(sizes.values()) > 0

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", r"'' in ''; write axis=size, as in 'dp=2,tp=4'"),
            ("dp", "'dp' in 'dp'"),
            ("dp=two", "'dp=two' in"),
            ("dp=2,", "'' in 'dp=2,'"),
            ("dp=2,dp=2", "axis dp appears twice in 'dp=2,dp=2'; name it once"),
            ("x=2", "mesh axis 'x' is unknown; use one of pp, dp, "),
            ("dp=0", "mesh axis dp has size 0; use 1 or more"),
        ],
    )
    def test_malformed(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"^parse_mesh: {message}"):
            mesh.parse_mesh(text)

    def test_first_devices_in_order(self) -> None:
        made = mesh.make_mesh("dp=2,tp=3")
        assert made.axis_names == ("dp", "tp")
        assert made.axis_types == (AxisType.Auto, AxisType.Auto)
        assert made.devices.ravel().tolist() == jax.devices()[:6]
        assert made == mesh.make_mesh({"dp": 2, "tp": 3})

    def test_too_few_devices(self) -> None:
        message = r"make_mesh: dp=8,tp=9 needs 72 devices; there are \d+; call .*devices\(72\)"
        with pytest.raises(ValueError, match=message):
            mesh.make_mesh("dp=8,tp=9")

    def test_sizes_are_checked(self) -> None:
        with pytest.raises(ValueError, match="make_mesh: mesh axis tp has size -1"):
            mesh.make_mesh({"tp": -1})


class TestLayout:
    @pytest.mark.parametrize(
        ("layout", "expected"),
        [
            ("", P()),
            ("b", P(None)),
            ("b_dp t f_tp", P("dp", None, "tp")),
            ("b_dp_fsdp", P(("dp", "fsdp"))),
        ],
    )
    def test_spec(self, layout: str, expected: jax.P) -> None:
        assert mesh.spec(layout) == expected

    def test_parse(self) -> None:
        assert mesh.parse_layout("b_dp_fsdp t") == (("b", ("dp", "fsdp")), ("t", ()))

    @pytest.mark.parametrize(
        ("layout", "message"),
        [
            ("b_x", "mesh axis 'x' is unknown; use one of"),
            ("b_", "mesh axis '' is unknown"),
            ("_dp", "dim '' in '_dp'; name dims as in 'b_dp t'"),
            ("b,dp", "dim 'b,dp'"),
            ("b_dp d_dp", "axis dp twice in 'b_dp d_dp'; use it once"),
        ],
    )
    def test_malformed(self, layout: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"^parse_layout: {message}"):
            mesh.parse_layout(layout)


class TestLocalShape:
    def test_a_scalar_has_no_dim(self) -> None:
        assert mesh.local_shape((), "", {"dp": 4}) == ()

    @settings(deadline=None)
    @given(axis_sizes.filter(len), st.data())
    def test_equals_what_jax_makes(self, sizes: dict[str, int], data: st.DataObject) -> None:
        """Splits three dims over the axes at random."""
        dims = ["b", "t", "d"]
        for axis in sizes:
            k = data.draw(st.integers(0, 2))
            dims[k] += f"_{axis}"
        layout, shape = " ".join(dims), (36, 36, 36)
        sharding = NamedSharding(mesh.make_mesh(sizes), mesh.spec(layout))
        try:
            expected = sharding.shard_shape(shape)
        except ValueError:
            with pytest.raises(ValueError, match="must be divisible"):
                mesh.local_shape(shape, layout, sizes)
        else:
            assert mesh.local_shape(shape, layout, sizes) == expected

    @pytest.mark.parametrize(
        ("shape", "layout", "message"),
        [
            (
                (10,),
                "f_tp",
                r"dim f \(size 10\) must be divisible by mesh axis tp \(size 4\); "
                r"pad f to 12 or use tp in \{1, 2, 5, 10\}",
            ),
            ((10**12 + 1,), "f_tp", r"dim f .* or use tp in \{1, 73\}"),
            ((4, 4), "b t_dp_tp", r"dim t \(size 4\) .* axis dp\*tp \(size 8\); pad t to 8"),
            ((4,), "b t", r"shape \(4,\) has 1 dims and layout 'b t' names 2; name each dim once"),
            ((4,), "b_cp", "layout 'b_cp' uses mesh axis cp; the mesh is dp=2,tp=4; add cp to"),
        ],
    )
    def test_errors(self, shape: tuple[int, ...], layout: str, message: str) -> None:
        with pytest.raises(ValueError, match=f"^local_shape: {message}"):
            mesh.local_shape(shape, layout, {"dp": 2, "tp": 4})


@pytest.mark.parametrize("rank", [-1, 6])
def test_coordinates_of_no_device(rank: int) -> None:
    message = rf"^device_coordinates: rank {rank} in a mesh of 6 devices \(2, 3\); .* 0 to 5"
    with pytest.raises(ValueError, match=message):
        mesh.device_coordinates(rank, (2, 3))


def test_varying_axes() -> None:
    seen = []

    def look(x: jax.Array, y: jax.Array) -> jax.Array:
        seen.extend([mesh.varying_axes(x), mesh.varying_axes(y), mesh.varying_axes(x + y)])
        return x + y

    function = jax.shard_map(
        look,
        mesh=mesh.make_mesh("dp=2,tp=3"),
        in_specs=(P("dp"), P(None, "tp")),
        out_specs=P("dp", "tp"),
    )
    jax.eval_shape(function, np.zeros((2, 1)), np.zeros((1, 3)))
    assert seen == [{"dp"}, {"tp"}, {"dp", "tp"}]
    assert mesh.varying_axes(jax.numpy.zeros(3)) == set()


def test_no_axis_has_one_chunk() -> None:
    assert mesh.check_chunks("here", jax.numpy.zeros((1, 3)), None) == 1
    with pytest.raises(ValueError, match=r"here: .* mesh axis None \(1\)"):
        mesh.check_chunks("here", jax.numpy.zeros(()), None)


def test_the_axes_of_a_spec_are_those_of_its_dims_in_order() -> None:
    assert mesh.axes_of(P(("pp", "tp"), None, "dp")) == ("pp", "tp", "dp")
    assert mesh.axes_of(P()) == ()
    assert mesh.axes_of(P(None, "dp")) == ("dp",)
