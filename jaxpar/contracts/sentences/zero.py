"""Sentences of lesson 09: ZeRO."""

SENTENCES: dict[str, str] = {
    "update_by_own_gradients": "Each device updates its rows by its own gradient; reduce-scatter "
    "the gradients first.",
    "params_not_passed": "The optimizer is not given the parameters, so that their decay is lost; "
    "pass it this device's rows of them.",
    "first_rows_everywhere": "Every device updates the first rows; device i takes those from "
    "i times their number on.",
    "rows_not_gathered": "Each device returns its new rows only; gather the rows of all.",
    "others_not_updated": "Each device returns the old parameters with its new rows in them; "
    "gather the new rows of all.",
    "updates_returned": "What the optimizer returns is to be added to the parameters, with "
    "optax.apply_updates.",
    "old_state_returned": "The state comes back as it was; return the one that the optimizer made.",
    "returns_whole_state": "The new state is gathered, so that every device holds all of it; "
    "return this device's part.",
    "reduces_then_slices": "The gradients are all-reduced and then cut, which sends twice the "
    "bytes of a reduce-scatter.",
    "gathers_state": "The state is gathered, and every device updates everything; update this "
    "device's rows, with this device's state.",
    "adds_rows_in_zeros": "The new rows are put together as an all-reduce of rows among zeros, "
    "twice the bytes of an all-gather.",
    "own_norm": "This is the norm of the part that this device holds; add up the squares of all "
    "devices before the root.",
    "adds_norms": "The norms of the devices' parts are added; add up squares, and take the root of "
    "their sum.",
    "averages_norms": "The norms of the devices' parts are averaged; add up squares, and take the "
    "root of their sum.",
    "largest_norm": "This is the largest norm of any device's part; add up the squares of all.",
    "averages_squares": "The sums of squares are averaged over the devices; add them up: the parts "
    "together are one vector.",
    "root_before_sum": "The norms of the leaves are added; add up the squares of all leaves, and "
    "take one root.",
    "norm_without_root": "This is the square of the norm; take its root.",
    "squares_of_sums": "The devices' parts are added up, and then squared; they are different "
    "elements, so square them first.",
    "norm_over_whole_mesh": "The squares are added up over every device of the mesh; add them up "
    "over `axis` alone.",
    "gathers_shards": "The parts of all devices are gathered; one number from each is enough.",
    "adds_squares_one_by_one": "The squares are added up over the devices one by one; add them up "
    "on each device first, and send one number.",
    "norm_leaf_by_leaf": "Every leaf has an all-reduce of its own, and waits for it; add up the "
    "squares of all leaves first.",
    "rows_of_own_gradient": "Each device adds up rows of its own gradient only; reduce-scatter the "
    "gradient of each microbatch.",
    "returns_whole_gradient": "The mean gradient is gathered, so that every device returns all of "
    "it; return this device's rows.",
    "reduces_each_then_slices": "The gradients are all-reduced, by you or, where `params` are not "
    "cast, by JAX, and then cut, which sends twice the bytes of a reduce-scatter.",
    "full_accumulator": "The accumulator is a whole gradient; reduce-scatter each microbatch's "
    "gradient, and add up this device's rows.",
    "first_microbatch_outside": "The first microbatch is taken outside the loop, and the compiler "
    "holds its gradient beside the loop's; start from zeros of the shape of this device's rows.",
}
