"""Sentences of lesson 02: collectives."""

SENTENCES: dict[str, str] = {
    "sum_for_mean": "The sum over the devices is not divided by their number.",
    "constant_n": "The number of devices is a constant, 8, or counts all devices; "
    "lax.axis_size(axis) is the size of the axis.",
    "divides_by_whole_mesh": "The sum over `axis` is divided by the number of devices in the whole "
    "mesh; divide by the size of `axis`.",
    "means_over_whole_mesh": "The mean is taken over every device of the mesh; take it over `axis` "
    "alone.",
    "divides_twice": "The sum is divided by n twice; lax.pmean has divided already.",
    "mean_of_elements": "The elements of x are averaged, too; average over the devices only, "
    "element by element.",
    "mean_cuts_gradient": "The gradient does not pass through the mean; each x gets 1/n of it.",
    "gathers_for_mean": "Every x is gathered on every device and averaged there: n/2 times the "
    "bytes of an all-reduce.",
    "scatter_ignores_root": "The chunks of all devices are summed; only the root's x counts.",
    "scatter_from_zero": "Device 0 is always taken for the root; use `root`.",
    "own_chunk": "Each device keeps its own chunk i; chunk i must come from the root.",
    "next_chunk": "Device i gets chunk i+1; it must get chunk i.",
    "keeps_chunk_dim": "The result keeps a dim of size 1 in front; return x[i], not x[i : i + 1].",
    "counts_from_root": "Chunks are dealt out from the root on; device i gets chunk i, wherever "
    "the root is.",
    "scatter_cuts_gradient": "The gradient does not come back to the root; the backward pass of a "
    "scatter is a gather.",
    "broadcast_for_scatter": "Every device returns the root's whole x; device i returns x[i] only.",
    "broadcasts_then_takes": "An all-reduce brings the root's whole x to every device, which keeps "
    "1/n of it: twice the bytes needed.",
    "gathers_then_takes": "Every device's whole x is gathered for one chunk of the root's: n times "
    "the bytes needed.",
    "gather_on_every_device": "Every device returns the gathered array; all but the root return "
    "zeros.",
    "gather_to_zero": "The array ends up on device 0; it belongs on `root`.",
    "gather_counts_from_root": "The stack begins with the root's x; y[j] must come from device j.",
    "arrival_order": "The stack is in order of arrival round the ring; y[j] must come from "
    "device j.",
    "concatenates": "The arrays are concatenated along dim 0; stack them along a new first dim.",
    "others_keep_their_slot": "The other devices return their own x in its slot; they return "
    "zeros.",
    "gather_cuts_gradient": "The gradient does not come back from the root; the backward pass of a "
    "gather is a scatter.",
    "slots_by_all_reduce": "An all-reduce sums slots that are zero but one: twice the bytes of an "
    "all-gather.",
    "gathers_as_equal": 'all_gather(..., to="invarying") makes its backward pass an all-reduce of '
    "[n, ...]; the default makes it a reduce-scatter, half the bytes.",
    "highest_index": "On ties this gives the highest index; the lowest is asked for.",
    "others_vote_zero": "Devices that do not hold the maximum vote 0, and win the minimum; let "
    "them vote n.",
    "adds_indices": "The indices of all holders are added, which is wrong on ties; take their "
    "minimum.",
    "never_agrees": "Each device returns its own vote; take the minimum of the votes over the "
    "devices.",
    "index_as_float": "The index has the dtype of x; return it as int32.",
    "index_of_element": "The index is that of an element within x; return that of a device.",
    "one_maximum_for_all": "One maximum is taken over all elements; take one per element, over the "
    "devices.",
    "gathers_for_location": "Every x is gathered on every device; two all-reduces of x are enough.",
    "slots_for_location": "An all-reduce of n slots gathers every x on every device; two "
    "all-reduces of x are enough.",
    "in_arrival_order": "Chunks are stacked in the order of the steps; the one from device j goes "
    "to y[j].",
    "chunk_for_another": "Step k sends chunk i-k to device i+k, and it ends up on the wrong "
    "device; device i+k gets chunk i+k.",
    "placed_by_target": "The chunk received in step k is stored at i+k, where this device sent to; "
    "it came from device i-k.",
    "own_chunk_to_all": "Each device sends its own chunk i to all; device j gets chunk j.",
    "chunk_by_step": "Step k sends chunk k whatever the device; device i sends chunk i+k to "
    "device i+k.",
    "keeps_nothing": "y[i] on device i is empty; a device's own chunk stays where it is.",
    "exchange_cuts_gradient": "The gradient does not come back with the chunks; each returns to "
    "the device that sent it.",
    "one_collective": "lax.all_to_all does it in one call; build it from lax.ppermute here.",
    "gathers_everything": "Every device's whole x is gathered for one chunk of each: n times the "
    "bytes needed, and not by permutes.",
    "whole_x_each_step": "Each step sends all of x where one chunk is wanted: n times the bytes "
    "needed.",
}
