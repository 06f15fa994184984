"""Sentences of lesson 05: the sampler."""

SENTENCES: dict[str, str] = {
    "rank_in_seed": "`rank` is in the seed, so every device has an order of its own: some examples "
    "come twice and others never. Shuffle by seed and epoch only.",
    "epoch_not_in_seed": "Every epoch deals the examples out alike; shuffle by `epoch`, too.",
    "seed_not_used": "Every seed deals the examples out alike; shuffle by `seed`, too.",
    "not_shuffled": "The examples are dealt out in the order in which they come; shuffle them.",
    "own_part_shuffled": "Each device shuffles its own part, which is the same in every epoch; "
    "shuffle all examples, then deal them out.",
    "drawn_with_replacement": "Examples are drawn with replacement, so that some come twice and "
    "others never; use a permutation.",
    "rest_dropped": "The examples that are left over are dropped; repeat some, so that each device "
    "has one more.",
    "rest_not_padded": "Some devices have an example more than others, which would wait for them; "
    "repeat some examples until all have the same number.",
    "padded_with_last": "The padding is the last example, over and over; go on from the first.",
    "padded_once": "The examples are repeated once, which is too few where there are more than "
    "twice as many devices; go round until each device has one.",
}
