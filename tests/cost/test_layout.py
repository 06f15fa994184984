"""What a layout refuses."""

from typing import Any

import pytest

from jaxpar.cost.layout import Layout


@pytest.mark.parametrize(
    ("field", "line"),
    [
        ({"remat": "half"}, "Layout: remat is 'half'; use one of none, selective, full"),
        ({"zero": 4}, "Layout: zero is 4; use one of 0, 1, 2, 3"),
        ({"offload": "disk"}, "Layout: offload is 'disk'; use one of none, optimizer, all"),
    ],
)
def test_what_a_layout_cannot_be(field: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Layout(**field)
