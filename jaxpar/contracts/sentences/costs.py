"""Sentences of lesson 04: costs."""

_STATES: dict[str, str] = {
    "states_in_gib": "The result is in GiB; return bytes.",
    "states_in_gb": "The result is in GB; return bytes.",
    "states_in_bits": "The result is eight times too large: it is in bits; return bytes.",
    "states_given_in_bits": "The result is an eighth of the right one; param_bytes, grad_bytes and "
    "state_bytes are bytes already, so divide by nothing.",
    "states_never_shared": "`zero` changes nothing; divide by devices what its stage shares.",
    "states_always_shared": "Everything is divided by devices in every stage; that is stage 3, so "
    "look at `zero`.",
    "stage_one_late": "Each stage shares what the one before it should; stage 1 shares the "
    "optimizer states, 2 the gradients too, and 3 the parameters too.",
    "stage_one_early": "Each stage shares what the next one should; stage 0 shares nothing, and "
    "stage 1 the optimizer states alone.",
    "parameters_shared_first": "Stage 1 divides the parameters; the optimizer states come first, "
    "then gradients, then parameters.",
    "gradients_shared_first": "Stage 1 divides the gradients; the optimizer states come first.",
    "one_state_shared": "Each stage divides one of the three only; it divides what the stage "
    "before it does as well.",
    "weights_counted_twice": "The weights are counted twice, beside the parameters with the "
    "optimizer states, too; state_bytes has any float32 copy of them already, so add nothing.",
    "gradients_not_counted": "Gradients are left out; add grad_bytes for each parameter.",
    "always_adam_mixed": "The bytes are always 2, 2 and 12, those of mixed precision with Adam; "
    "use the three arguments.",
    "states_of_all_devices": "This is what all devices hold together; return what one holds.",
    "whole_parameters": "The parameters of a device are rounded down; use / in place of //.",
    "unknown_stage_is_3": "A `zero` that is none of 0, 1, 2, 3 must raise ValueError.",
    "no_devices_taken_for_one": "With no devices, or fewer, ValueError must be raised.",
}
_FLOPS: dict[str, str] = {
    "attention_left_out": "The two products of attention are left out, as in 6 FLOPs for each "
    "parameter and token; add 4*B*s*s*h for each layer's forward pass.",
    "causal_half": "The products of attention count half; a causal mask halves nothing here, and "
    "both products count: 4*B*s*s*h for each layer's forward pass.",
    "multiply_adds": "The result is half of the right one; a multiplication and an addition are 2.",
    "flops_of_forward": "The backward pass is left out; it takes twice what the forward takes.",
    "backward_as_forward": "The backward pass counts as much as the forward pass; it has two "
    "products for each one, so count it twice.",
    "head_left_out": "The head is left out; it is a product of [tokens, h] by [h, V].",
    "embedding_as_product": "The embedding counts as a product; it looks rows up, so leave it out.",
    "head_computed_again": "With full the head is computed again; it is no layer, so leave it out.",
    "flops_of_one_layer": "There is one layer only; multiply what layers take by `layers`.",
    "flops_of_a_token": "These are the FLOPs of one token; a step has batch * sequence of them.",
    "output_projection_left_out": "A layer's matrices take 22h^2 for each token; attention has a "
    "fourth one, for its output, so count 24h^2.",
    "recomputation_ignored": "`remat` changes nothing; add what the backward pass computes again.",
    "selective_is_full": "Selective computes all layers again; count attention's scores and what "
    "they make of the values alone.",
    "selective_one_product": "Selective computes one product of attention again; count both.",
    "other_remat_is_none": "A `remat` that is none of the three must raise ValueError.",
    "no_sizes_counted": "A size of 0 or below must raise ValueError.",
}
_MFU: dict[str, str] = {
    "mfu_of_one_device": "The tokens of all devices are held against the peak of one; divide by "
    "`devices`, too.",
    "mfu_tokens_of_each": "The tokens are multiplied by `devices`; they are those of all devices "
    "already, so divide by `devices` instead.",
    "mfu_in_percent": "The result is in percent; return a share, at most 1.",
    "mfu_upside_down": "This is the peak by what the model took; turn it round.",
    "mfu_sparse_peak": "The result is half of the right one; that is a sparse peak, twice the "
    "dense one, so divide by `peak_flops` as it is.",
    "mfu_peak_halved": "The result is twice the right one; `peak_flops` is dense already, and "
    "`flops_per_token` counts a multiplication and an addition as 2, so scale neither.",
    "mfu_with_recomputation": "A third is added for what is computed again; that is no use to the "
    "model, and counts in HFU only.",
    "mfu_three_passes": "The FLOPs are taken three times; `flops_per_token` is forward and "
    "backward already.",
    "mfu_parameters_for_flops": "The result is six times too large; `flops_per_token` is FLOPs, "
    "not parameters.",
    "mfu_peak_in_tera": "`peak_flops` is multiplied by 1e12; it is in FLOPs, not in tera.",
    "mfu_in_whole_numbers": "The share is rounded down to 0; use / in place of //.",
    "mfu_zero_for_nothing": "A number of 0 or below must raise ValueError.",
}
_ALL_REDUCE: dict[str, str] = {
    "seconds_of_one_pass": "This is half of it: a reduce-scatter alone, or an all-gather; both "
    "together are an all-reduce, with 2(n - 1) steps.",
    "seconds_whole_each_step": "A device sends num_bytes in each step, as if the array were n "
    "times as large; it sends one of n parts, num_bytes / n.",
    "seconds_a_step_for_each": "There are 2n steps; a ring all-reduce has 2(n - 1).",
    "seconds_own_part_sent": "The bytes are 2 * num_bytes in all; there are n - 1 steps in each "
    "pass, so a device sends 2(n - 1)/n times num_bytes.",
    "seconds_one_latency": "There is one latency in all; each of the 2(n - 1) steps has one.",
    "seconds_no_latency": "The latency is left out; each of the 2(n - 1) steps has one.",
    "seconds_latency_of_one_pass": "There are n - 1 latencies; both passes have so many, so count "
    "2(n - 1).",
    "seconds_both_directions": "The bytes take half their time: both passes have n - 1 steps, "
    "and a ring sends one way round, so take `bytes_per_second` as it is.",
    "seconds_of_a_tree": "This is a tree, with 2 log2 n steps; write the ring, with 2(n - 1).",
    "seconds_in_bits": "The bytes are multiplied by 8; the bandwidth is in bytes, too.",
    "seconds_taken_for_bits": "The bytes are divided by 8; they are bytes already, as the "
    "bandwidth is.",
    "seconds_gib_over_gb": "The bytes are in GiB and the bandwidth in GB; use bytes for both.",
    "seconds_in_milliseconds": "The result is in milliseconds; return seconds.",
    "seconds_nothing_refused": "n below 1, a bandwidth not above 0, and negative bytes or latency "
    "must raise ValueError.",
    "seconds_alone_is_refused": "One device alone is no error; it has nothing to send: 0 seconds.",
}
_HIERARCHY: dict[str, str] = {
    "levels_whole_between": "Each device sends the whole array between nodes, or has a link that "
    "is shared once more; after the reduce-scatter it has num_bytes / inner, and outer_link is its "
    "own.",
    "levels_links_swapped": "The links are swapped; inner_link is inside a node.",
    "levels_sizes_swapped": "The sizes are swapped; a node has `inner` devices, and there are "
    "`outer` nodes.",
    "levels_inside_once": "One of the two parts inside a node is missing; there is a "
    "reduce-scatter before, and an all-gather after.",
    "levels_between_once": "Between nodes there is half an all-reduce; it has 2(outer - 1) steps.",
    "levels_inside_twice_over": "Inside a node there are two all-reduces; a reduce-scatter before "
    "and an all-gather after are one together.",
    "levels_flat_ring": "This is one ring over all devices on the slow link; add up the time "
    "inside nodes and that between them.",
    "levels_all_between": "The ring between nodes has all devices; it has `outer`: those that hold "
    "the same part.",
    "levels_at_once": "This is the longer of both times; each part waits for the one before, so "
    "add them up.",
    "levels_part_of_a_node": "Between nodes num_bytes / outer is reduced; a device's part is "
    "num_bytes / inner.",
    "levels_link_of_a_node": "The bandwidth between nodes is multiplied by `inner`, as that of a "
    "node; outer_link is one device's.",
    "levels_both_directions": "The bytes take half their time; a ring sends one way round, so take "
    "the bandwidths as they are.",
    "levels_in_bits": "The bytes are multiplied by 8; bandwidths are in bytes, too.",
    "levels_without_latency": "Latencies are left out; each step has the one of its link.",
    "levels_nothing_refused": "Sizes below 1, bandwidths not above 0, and negative bytes or "
    "latencies must raise ValueError.",
}
SENTENCES: dict[str, str] = _STATES | _FLOPS | _MFU | _ALL_REDUCE | _HIERARCHY
