"""Sentences of lesson 19: the planner."""

_CACHE: dict[str, str] = {
    "cache_of_keys_alone": "The result is half of the right one; keys and values are both kept.",
    "cache_of_one_example": "This is the cache of one example; multiply by `batch`.",
    "cache_of_one_token": "This is what one token adds; multiply by `sequence`.",
    "cache_of_one_layer": "This is the cache of one layer; each has its own, so multiply by "
    "`layers`.",
    "cache_of_one_head": "`kv_heads` is left out; each head of keys has head_size elements.",
    "cache_of_one_element": "`head_size` is left out; a key has so many elements in each head.",
    "cache_of_scores": "The cache grows with the square of `sequence`; scores are not kept, so "
    "count keys and values alone.",
    "cache_in_bits": "The cache is eight times too large: it is in bits; return bytes.",
    "cache_given_in_bits": "The result is an eighth of the right one; element_bytes is bytes "
    "already, so divide by nothing.",
    "cache_in_gb": "The cache is in GB; return bytes.",
    "cache_in_gib": "The cache is in GiB; return bytes.",
    "cache_always_16_bits": "Elements always take 2 bytes; use `element_bytes`.",
    "cache_of_whole_bytes": "element_bytes is rounded; two elements of 4 bits share a byte, so "
    "take it as it is.",
    "cache_of_anything": "A cache of sizes or element_bytes of 0 or below must raise ValueError.",
}
_BATCH: dict[str, str] = {
    "batch_rounded_up": "The batch is rounded up, and its last example does not fit; round down.",
    "batch_rounded": "The batch is rounded to the nearest number; half an example does not fit, so "
    "round down.",
    "batch_no_whole_number": "A batch is a whole number; return an int, rounded down.",
    "batch_without_states": "The states are forgotten; take them off device_bytes first.",
    "batch_states_twice": "The states are counted twice; they are there once, weights and all.",
    "batch_states_for_each": "Each example brings its own states; they are there once, for all.",
    "batch_below_zero": "Where the states do not fit the batch is negative; return 0.",
    "batch_at_least_one": "Where no example fits there is still one; return 0.",
    "batch_one_byte_free": "What fills the memory to its last byte fits; ask for <=, not <.",
    "batch_power_of_two": "The batch is rounded down to a power of two; any number is allowed.",
    "batch_in_gib": "The device is in GiB, and what it holds in GB; use bytes for both.",
    "batch_tenth_kept": "A tenth of the memory stays empty; use all of device_bytes.",
    "batch_too_large_refused": "States that do not fit are no error; the answer is 0.",
    "batch_float_of_floats": "Of floats // makes a float; return an int of it.",
    "batch_of_anything": "bytes_per_example of 0 or below, and other negative numbers, must raise "
    "ValueError.",
}
_INTERVAL: dict[str, str] = {
    "interval_without_2": "This is sqrt(C M); a failure loses half an interval on average, which "
    "puts a 2 under the root.",
    "interval_2_outside": "This is 2 sqrt(C M); the 2 belongs under the root.",
    "interval_without_root": "The root is missing.",
    "interval_of_a_quotient": "The time of a checkpoint divides; longer checkpoints should be "
    "rarer, so multiply by it.",
    "interval_of_a_sum": "The two times are added; multiply them.",
    "interval_of_failures": "This is the time between failures; with a checkpoint that rare, half "
    "of all work is lost.",
    "interval_and_checkpoint": "The checkpoint itself is added; return the time of work between "
    "two of them.",
    "interval_less_checkpoint": "The checkpoint is taken off, as for the time from start to start "
    "in one of Daly's forms; return the first order, the root alone.",
    "interval_in_minutes": "The result is in minutes; return seconds.",
    "interval_in_hours": "The result is in hours; return seconds.",
    "interval_mtbf_in_hours": "The result is 60 times too large, as if mtbf_seconds were hours; it "
    "is in seconds already.",
    "interval_in_whole_seconds": "The result is rounded to seconds; return it as it is.",
    "interval_of_anything": "A negative time must raise ValueError.",
    "interval_zero_refused": "Zero is a time, too: the interval is 0 then; refuse negative times "
    "only.",
}
_PLAN: dict[str, str] = {
    "plan_memory_ignored": "This is the fastest of all, fitting or not; leave out what needs more "
    "than device_bytes.",
    "plan_fastest_or_none": "If the fastest of all does not fit there is no plan; look at those "
    "that fit, and take the fastest of them.",
    "plan_with_least_memory": "This is the plan with least memory; take the fastest that fits.",
    "plan_with_most_memory": "This is the plan with most memory; take the fastest that fits.",
    "plan_slowest": "This is the slowest that fits; take the least step_seconds.",
    "plan_first_that_fits": "This is the first that fits; the plans are in no order, so compare "
    "all.",
    "plan_first_taken_for_granted": "The first plan is the best so far before it is known to fit; "
    "begin with None.",
    "plan_last_on_ties": "Of plans that are as fast, the last is taken; take the first.",
    "plan_ties_by_memory": "Of plans that are as fast, the one with least memory is taken; take "
    "the first of the list.",
    "plan_less_than_the_device": "A plan that needs exactly device_bytes fits; ask for <=, not <.",
    "plan_tenth_left_free": "Plans must leave a tenth of device_bytes free here; all of it may be "
    "used.",
    "plan_none_raises": "Where nothing fits an error is raised; return None.",
    "plan_smallest_if_none": "Where nothing fits a plan is returned; return None.",
    "plan_its_seconds": "This is the time of the plan; return the plan, the dict itself.",
    "plan_its_place": "This is the plan's place in the list; return the plan, the dict itself.",
}
SENTENCES: dict[str, str] = _CACHE | _BATCH | _INTERVAL | _PLAN
