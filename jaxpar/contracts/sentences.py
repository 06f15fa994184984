"""What the learner is told about each known mistake, in one sentence."""

SENTENCES: dict[str, str] = {
    # 01 devices and meshes
    "first_axis_fastest": "The first axis of `sizes` moves fastest here; in a mesh the last one "
    "does, so start from the end.",
    "not_turned_round": "The positions are right, but the last axis comes first; turn them round.",
    "stride_without_remainder": "Each position is the rank divided by the sizes after its axis, "
    "but never reduced modulo the size of the axis itself.",
    "remainder_without_stride": "Each position is the rank modulo the size of its axis; first "
    "divide by the sizes of the axes after it.",
    "own_size_as_stride": "The rank is divided by the size of the axis itself; divide it by the "
    "product of the sizes of the axes after it.",
    "ranks_from_one": "Ranks are counted from one here; the first device has rank 0.",
    "rounds_down": "A size that does not divide is rounded down, which loses elements; raise "
    "ValueError.",
    "rounds_up": "A size that does not divide is rounded up, as if it were padded; raise "
    "ValueError.",
    "first_axis_only": "A dim split over several axes is divided by the first of them only; divide "
    "by all.",
    "adds_the_axes": "The sizes of several axes on one dim are added; the dim is split by their "
    "product.",
    "first_dim_by_whole_mesh": "Dim 0 is divided by the whole mesh; only the axes that the layout "
    "names on a dim split it.",
    "global_shape": "This is the shape of the whole array; each device holds a part of it.",
    "size_for_index": "This adds the number of devices on the axis; add the index of this device.",
    "rank_in_whole_mesh": "This adds the rank in the whole mesh; add the index on `axis` alone.",
    "rank_from_one": "Indices are counted from one here; the first device of an axis has index 0.",
    "axis_by_its_name": 'The axis is always "tp" here; use the one that the argument `axis` names.',
    "row_for_rank": "This adds the row number within the device's own x; every element gets the "
    "same index, that of the device.",
    "rank_widens_x": "The result is float32 where x is bfloat16; convert the index to the dtype of "
    "x.",
    "rank_cuts_gradient": "The gradient does not pass through x; adding a constant leaves it as it "
    "is.",
    "gathers_to_add_rank": "Every device's x is gathered to add the rank; a device needs only its "
    "own x and index.",
    # 02 collectives
    "sum_for_mean": "The sum over the devices is not divided by their number.",
    "constant_n": "The number of devices is a constant, 8; ask for the size of the axis.",
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
    # 03 rings and trees
    "keeps_chunk_after": "Device i ends with the sum of chunk i+1, because chunk i set out from "
    "device i; let it set out from device i+1.",
    "index_against_ring": "The sums travel one way round and the chunks are counted the other way, "
    "so different chunks are added.",
    "adds_own_chunk": "Every hop adds x[i], the chunk that this device keeps at the end; add the "
    "chunk whose sum has just arrived.",
    "ring_of_eight": "The ring always makes 7 hops; make n-1, for the size n of the axis.",
    "hops_of_two": "Each hop goes two devices on, which for even n never reaches half of them.",
    "one_hop_too_many": "There are n hops: a sum that has met every device is sent once more, and "
    "added to twice.",
    "one_hop_too_few": "There are n-2 hops, so each sum misses one device; n devices are n-1 hops "
    "apart.",
    "forwards_without_adding": "The devices on the way pass the chunk on as it came; each must add "
    "its own x of that chunk.",
    "ring_cuts_gradient": "The gradient stops at the last hop; it must go back round the ring to "
    "every device that added.",
    "every_chunk_everywhere": "Every device returns the sums of all chunks; device i returns that "
    "of chunk i only.",
    "sets_out_empty": "The ring starts with zeros and needs n hops; start with a chunk of x, and "
    "n-1 are enough.",
    "whole_buffer_round": "All of x goes round the ring where one chunk is wanted: n times the "
    "bytes needed.",
    "far_hops": "Chunks are sent straight to their device, up to n-1 places away; on a ring they "
    "go from neighbour to neighbour.",
    "one_reduce_scatter": "lax.psum_scatter does it in one call; build it from lax.ppermute here.",
    "all_reduces_then_takes": "An all-reduce brings the sums of all chunks to every device, which "
    "keeps one: twice the bytes needed.",
    "gathers_then_sums": "Every device's whole x is gathered for the sum of one chunk: n times the "
    "bytes needed.",
    "stacks_as_it_arrives": "The blocks are stacked in order of arrival; y[j] must come from "
    "device j.",
    "mirrored": "Blocks from device i-k are put at i+k, and the other way round; what comes from "
    "the previous device has a lower index.",
    "misses_opposite": "For even n the block of the opposite device never arrives; one way needs "
    "one hop more than the other.",
    "both_ways_next": "Both rings send to the next device, so half of the blocks never arrive; let "
    "one send to the previous.",
    "blocks_of_eight": "The result always has 8 blocks; it has n, the size of the axis.",
    "skips_neighbours": "Each hop goes two devices on, so not every block is met.",
    "two_way_cuts_gradient": "The gradient does not come back from the other devices; each x gets "
    "the sum of what all of them do with it.",
    "one_way": "All blocks go round one way in n-1 hops, and the links of the other way are idle.",
    "straight_to_each": "Blocks are sent straight to devices up to n/2 places away; on a ring they "
    "go from neighbour to neighbour.",
    "sends_all_it_holds": "Each hop sends all blocks that are held; the neighbour lacks only the "
    "one that came last.",
    "one_all_gather": "lax.all_gather does it in one call; build it from lax.ppermute here.",
    "sums_slots": "An all-reduce sums n slots that are zero but one: twice the bytes needed, and "
    "not by permutes.",
    "root_is_zero": "The x of device 0 is sent; send that of `root`.",
    "place_from_zero": "Who keeps what it receives is decided by the index of the device; count "
    "places from the root.",
    "zeros_without_source": "lax.ppermute gives zeros to a device that no pair sends to, and here "
    "they overwrite x; keep x there with jnp.where.",
    "adds_what_arrives": "What arrives is added to x; it must replace it.",
    "assumes_power_of_two": "The steps are log2 n rounded down, so for other n the last devices "
    "receive nothing; round up.",
    "only_root_sends": "Only the root sends, to one device in each step; let all that hold its x "
    "send it on.",
    "tree_cuts_gradient": "The gradient does not come back to the root; it gets the sum over all "
    "devices.",
    "root_sends_to_each": "The root sends to one device after the other in n-1 steps; let all that "
    "hold its x send it on.",
    "chain_for_tree": "x goes from device to device in n-1 steps; let all that hold it send it on.",
    "masked_sum": "An all-reduce adds the root's x to zeros; build a tree from lax.ppermute here.",
    "gathers_for_root": "Every device's x is gathered for the root's: n-1 times x, and not by "
    "permutes.",
    "same_partner": "The partner is one place away in every step; the distance must double.",
    "distances_by_one": "The distances are 1, 2, 3, so some x are counted twice; they must double: "
    "1, 2, 4.",
    "three_steps": "There are always three steps; make log2 n, for the size n of the axis.",
    "sends_first_x_only": "Each step sends the device's own x; send the sum so far.",
    "one_of_each_pair_sends": "In each pair one device sends and the other does not, so half of "
    "the sums lack a part; let both send.",
    "keeps_partners": "What arrives replaces the sum; add it.",
    "doubling_cuts_gradient": "The gradient does not come back from the partners; each x gets the "
    "sum over all devices.",
    "ring_of_whole_x": "x goes round the ring in n-1 steps; with partners at 1, 2, 4, ... it takes "
    "log2 n.",
    "one_all_reduce": "lax.psum does it in one call; build it from lax.ppermute here.",
    "gathers_to_sum": "Every x is gathered and added up on every device: n-1 times x, and not by "
    "permutes.",
    "any_size": "An axis whose size is not a power of two must raise ValueError; here some devices "
    "would be counted twice.",
    "only_within_nodes": "The sum is over `inner` only; the chunks must be all-reduced over "
    "`outer`, too.",
    "only_between_nodes": "The sum is over `outer` only; first sum over `inner` with a "
    "reduce-scatter.",
    "sums_node_twice": "An all-reduce and a reduce-scatter both sum over `inner`, so the result is "
    "n_inner times too large.",
    "drops_remainder": "The elements of x that are left over when it is cut into n_inner chunks "
    "are not summed; pad x.",
    "keeps_padding": "The result is flat and keeps the padding; cut it to x.size and give it the "
    "shape of x.",
    "levels_cut_gradient": "The gradient stops before the reduce-scatter over `inner`; it must "
    "reach the x of every device.",
    "flat_sum": "One all-reduce over both axes sends all of x between nodes; reduce-scatter over "
    "`inner` first.",
    "whole_x_between_nodes": "All of x is all-reduced over `outer`; n_inner devices could carry "
    "1/n_inner of it each.",
    "swaps_levels": "`inner` and `outer` are swapped: the slow links carry whole arrays, and the "
    "fast ones parts.",
    "all_reduces_then_cuts": "An all-reduce over `inner` sends twice what a reduce-scatter does, "
    "and the device keeps one chunk of it.",
    "gathers_node": "Every x of the node is gathered to be added up; a reduce-scatter sends "
    "1/n_inner of that.",
    "gathers_chunks_between_nodes": "The chunks of all nodes are gathered to be added up; an "
    "all-reduce sends less from four nodes on.",
}
