"""Collectives: how the devices of a mesh axis exchange arrays.

Every function here works on one device's shard of an array, inside `jax.shard_map`. Where `axis`
may be None, None means "not split": the group is this device alone. The result of a function that
is built from permutes is typed as varying over the axis, even if it is equal on every device,
because the type system cannot know that.

Each docstring states what the function sends and holds, in a fixed grammar that a test compares
with what the inspector measures:

    Comm:
        <direction>[ if op in {<op>, ...}]: <part> [+ <part>]... | nothing | no derivative
    Memory: <size>

    direction  forward, or backward: what the reverse pass sends
    part       <kind>(<axis argument>) <size>
    kind       all_reduce, reduce_scatter, all_gather, all_to_all, permute
    size       an expression without spaces, in numbers, + - * /, ceil, log2, and
                 x        (an array argument) its number of elements on one device
                 n        the number of devices on `axis`; n_inner, n_outer on `inner`, `outer`

The size of a part is the number of elements that go into the collective on one device, over all
its calls. An all_reduce then sends 2*(n-1)/n times that size, a reduce_scatter or an all_to_all
(n-1)/n times, and an all_gather n-1 times. A permute sends all of it: the size is that on the
busiest device, sent or received. If a direction has several lines, the first one whose condition
holds applies; a long line continues on the next, indented. Memory is the size of the result on one
device.
"""

from jaxpar.collectives.hierarchical import hierarchical_all_gather as hierarchical_all_gather
from jaxpar.collectives.hierarchical import hierarchical_all_reduce as hierarchical_all_reduce
from jaxpar.collectives.hierarchical import (
    hierarchical_reduce_scatter as hierarchical_reduce_scatter,
)
from jaxpar.collectives.layouts import swap_layout as swap_layout
from jaxpar.collectives.primitives import add_rank as add_rank
from jaxpar.collectives.primitives import all_gather as all_gather
from jaxpar.collectives.primitives import all_to_all as all_to_all
from jaxpar.collectives.primitives import all_to_all_by_permutes as all_to_all_by_permutes
from jaxpar.collectives.primitives import broadcast as broadcast
from jaxpar.collectives.primitives import gather as gather
from jaxpar.collectives.primitives import permute as permute
from jaxpar.collectives.primitives import scatter as scatter
from jaxpar.collectives.reductions import all_reduce as all_reduce
from jaxpar.collectives.reductions import mean_over_devices as mean_over_devices
from jaxpar.collectives.reductions import reduce as reduce
from jaxpar.collectives.reductions import reduce_max_location as reduce_max_location
from jaxpar.collectives.reductions import reduce_min_location as reduce_min_location
from jaxpar.collectives.reductions import reduce_scatter as reduce_scatter
from jaxpar.collectives.ring import ring_all_gather as ring_all_gather
from jaxpar.collectives.ring import ring_all_reduce as ring_all_reduce
from jaxpar.collectives.ring import ring_reduce_scatter as ring_reduce_scatter
from jaxpar.collectives.ring import two_way_ring_all_gather as two_way_ring_all_gather
from jaxpar.collectives.tree import recursive_doubling_all_gather as recursive_doubling_all_gather
from jaxpar.collectives.tree import recursive_doubling_all_reduce as recursive_doubling_all_reduce
from jaxpar.collectives.tree import tree_broadcast as tree_broadcast
from jaxpar.collectives.tree import tree_reduce as tree_reduce
