"""Sentences of lesson 12: sequence parallelism."""

SENTENCES: dict[str, str] = {
    "positions_not_gathered": "Each device multiplies its own positions only, so that the sum adds "
    "up different ones; gather x over dim 1 before the columns.",
    "batch_gathered": "x is gathered over dim 0, the batch; its positions are dim 1: "
    "lax.all_gather(x, axis, axis=1, tiled=True).",
    "batch_scattered": "The result is scattered over dim 0, the batch; use scatter_dimension=1, "
    "the positions.",
    "model_dim_scattered": "The result is scattered over dim 2; each device needs whole vectors "
    "of its positions: scatter_dimension=1.",
    "positions_interleaved": "The gathered positions are interleaved; lax.all_gather with axis=1 "
    "and tiled=True puts those of the devices one after another.",
    "positions_of_own_product": "Each device keeps its positions of its own product; that is a "
    "part of the sum, so use lax.psum_scatter.",
    "products_summed_twice": "The products are summed twice, and the result is n times too large; "
    "lax.psum_scatter alone sums.",
    "products_averaged": "The sum is divided by the number of devices; the products are parts of "
    "a sum, not of a mean.",
    "gelu_of_scattered_sum": "GELU comes last; it belongs between the two products, on each "
    "device's columns.",
    "exact_gelu": "This is the exact GELU; use the tanh form, jax.nn.gelu(x, approximate=True).",
    "all_positions_returned": "Every device returns all positions, as tensor parallelism does; "
    "leave each device its own by lax.psum_scatter.",
    "gradient_of_own_columns": "The gradient of x is of this device's columns only; sum over the "
    "devices, as the derivative of lax.all_gather does.",
    "positions_cut_from_sum": "All positions are summed on all devices, and each cuts out its own; "
    "lax.psum_scatter sums only what a device keeps, at half the bytes.",
    "gradient_cut_from_sum": "Backward, the gradient of all positions is all-reduced, and each "
    'device cuts out its own; lax.all_gather without to="invarying" has a reduce-scatter there.',
    "products_gathered": "Every device gathers all devices' products and adds them up: n times the "
    "bytes of lax.psum_scatter.",
    "positions_gathered_by_sum": "Positions are put into zeros and summed: twice the bytes of "
    "lax.all_gather.",
    "weights_not_x_gathered": "The weights are gathered, which are larger than x; leave them "
    "split, and gather x.",
}
