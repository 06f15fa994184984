"""Sentences of lesson 12: the ring matmul."""

SENTENCES: dict[str, str] = {
    "ring_matmul_mirrored": "The blocks go round the wrong way: rows that are sent to the next "
    "device come from the previous one, so round k has those of device i - k.",
    "ring_matmul_as_they_arrive": "The blocks are in the order in which they arrive, which differs "
    "on each device; those of device j go to block j.",
    "ring_matmul_one_round_short": "One block is missing: n products are needed, and n-1 hops.",
    "ring_matmul_of_eight": "The ring has 8 rounds always, and on fewer devices the rows come by "
    "more than once; n is lax.axis_size(axis).",
    "ring_matmul_off_by_one": "The rows are sent on before the first product, so all blocks are "
    "one place off; multiply first, then send.",
    "ring_matmul_sends_own_always": "Each round sends the device's own rows; send on what arrived "
    "in the round before.",
    "ring_matmul_not_closed": "The last device sends to no one, so zeros go round from device 0; "
    "close the ring by pairs (j, (j + 1) % n).",
    "ring_matmul_product_travels": "The product travels, but the next device needs these rows "
    "times its own columns; send the rows.",
    "ring_matmul_weights_travel": "The columns travel, and every device has its own rows times "
    "all columns; send the rows, so that it has all rows times its columns.",
    "ring_matmul_summed": "The result is summed over the devices; each has columns of its own.",
    "ring_matmul_own_rows_only": "A device multiplies its own rows only; the others' must come "
    "by, too.",
    "ring_matmul_cuts_gradient": "No gradient returns with the rows that travelled; leave "
    "lax.stop_gradient out: the derivative of lax.ppermute sends it home.",
    "ring_matmul_one_hop_too_many": "The rows are sent n times and come home; n-1 hops reach all "
    "devices.",
    "ring_matmul_gathers_first": "All rows are gathered before the product; multiply what is here "
    "while it travels on, by lax.ppermute to the next device.",
    "ring_matmul_gathers_by_sum": "All rows are put together by a sum with zeros: twice the bytes, "
    "and all of them are held at once.",
    "ring_matmul_far_hops": "Rows are sent further than to the next device, so one link carries "
    "several; pass on what arrived.",
    "ring_matmul_gathers_by_ring": "The rows go round and are collected before the product; "
    "multiply each block when it comes, and forget it.",
}
