"""Sentences of lesson 01: devices and meshes."""

SENTENCES: dict[str, str] = {
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
}
