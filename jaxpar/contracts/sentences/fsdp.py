"""Sentences of lesson 10: FSDP."""

SENTENCES: dict[str, str] = {
    "rows_interleaved": "The rows of the devices are interleaved; lax.all_gather with tiled=True "
    "puts them one after the other.",
    "first_layer_always": "Every turn of the loop uses the first layer; gather the one that "
    "lax.scan hands you.",
    "gradients_of_own_batch": "Each device returns the gradient of its own part of the batch; sum "
    "its rows over the devices, as the derivative of lax.all_gather does.",
    "gradients_averaged": "The gradient is divided by the number of devices; layers know no mean, "
    "so return the sum, and let the loss divide.",
    "gradients_all_reduced": "Whole gradients are summed on all devices, and each keeps its rows: "
    "twice the bytes of a reduce-scatter, which is the derivative of lax.all_gather.",
    "gathers_activations": "The batch is gathered, too, and every device computes all of it; a "
    "device needs the whole layer, but its own part of the batch only.",
    "gathers_by_sum": "Shards are put into zeros and summed: twice the bytes of lax.all_gather.",
    "gathers_all_layers": "All layers are gathered before the loop and are whole at once; gather "
    "one layer inside the loop.",
    "keeps_gathered": "Every gathered layer is kept for the backward pass; wrap gather and layer "
    "together in jax.checkpoint, inside the scan.",
    "unrolls_layers": "A Python loop puts all layers into one program, and the compiler gathers "
    "many of them early; use lax.scan.",
    "sum_over_shards": "The gradients are summed over `shard_axis`, not averaged: psum_scatter "
    "does not divide.",
    "sum_over_replicas": "The gradients are summed over `replica_axis`, not averaged.",
    "sum_over_both": "The gradients are summed over both axes; divide by the devices of both.",
    "replicas_not_reduced": "The replicas have different gradients: average over `replica_axis`, "
    "too.",
    "axes_swapped": "The rows are split over `replica_axis`; its devices hold copies, and those of "
    "`shard_axis` hold the rows.",
    "own_rows_of_own_gradient": "Each device keeps rows of its own gradient; average them over "
    "`shard_axis`, too.",
    "hybrid_whole_mean": "Every device returns the whole mean gradient; it must return the rows "
    "that it holds, which a reduce-scatter leaves it.",
    "replicas_first": "The whole gradient goes over `replica_axis`, the slow links; reduce-scatter "
    "over `shard_axis` first, and 1/n of it is left to send.",
    "whole_mean_then_rows": "The whole gradient is averaged over both axes, and rows are cut from "
    "it; reduce-scatter over `shard_axis`, then average the rows over `replica_axis`.",
    "all_reduce_then_rows": "The whole gradient is averaged over `shard_axis`, and rows are cut "
    "from it: twice the bytes of a reduce-scatter.",
    "gathers_replicas": "The rows of all replicas are gathered and averaged: r/2 times the bytes "
    "of an all-reduce over r replicas.",
    "first_dim_always": "The first dim is split even where n does not divide it; look for one that "
    "it divides.",
    "last_dim_always": "The last dim is split even where n does not divide it; look for one that "
    "it divides.",
    "largest_dim_always": "The largest dim is split even where n does not divide it; look for one "
    "that it divides.",
    "everything_replicated": "Every device holds everything: this is data parallelism.",
    "only_largest_leaf": "Only the largest leaf is shared; share all that are not small.",
    "small_leaves_shared": "Small leaves are shared, too: each costs collectives, and saves almost "
    "nothing.",
    "minimum_of_bytes": "`minimum_size` is compared with bytes; it is a number of elements.",
    "minimum_of_one_layer": "`minimum_size` is compared with one layer's part of a stacked leaf; "
    "compare it with the whole leaf.",
    "minimum_stays_whole": "A leaf of exactly `minimum_size` elements stays whole; only smaller "
    "ones may.",
    "n_of_all_devices": "A dim is split only if the number of all devices divides it; n is the "
    "size of `axis`, mesh.shape[axis].",
    "over_all_axes": "Leaves are shared over all axes of the mesh; the devices of the other axes "
    "hold copies, so that parameters are gathered over `axis` only.",
    "layers_shared": "Dim l of stacked layers is shared, so the compiler gathers all layers to "
    "take one; share another dim.",
}
