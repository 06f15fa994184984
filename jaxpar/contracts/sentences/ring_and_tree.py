"""Sentences of lesson 03: rings and trees."""

SENTENCES: dict[str, str] = {
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
