"""Sentences of lessons 15 and 16: schedules of pipelines."""

_GPIPE: dict[str, str] = {
    "last_microbatch_dropped": "The last microbatch is missing; there are `microbatches` of them, "
    "counted from 0, so the range ends at `microbatches`.",
    "stages_upside_down": "The last stage is in the first row; row s is device s, which holds "
    "stage s.",
    "backwards_first": "Each row begins with its backwards; a backward needs the forward of the "
    "same microbatch, so put the forwards before them.",
    "forwards_only": "There is no backward; add a B for each F, after the forwards.",
    "microbatch_before_stage": "The cells have the microbatch before the letter; the stage stands "
    "before it, the microbatch behind it.",
    "cells_counted_from_one": "Stages and microbatches are counted from 1; count them from 0.",
    "one_microbatch_at_a_time": "One device works at a time, as each microbatch is forward and "
    "backward before the next begins; do all forwards first.",
    "each_stage_starts_elsewhere": "Each stage begins with another microbatch, so most wait for "
    "the stage before them; take the microbatches in the same order everywhere.",
    "odd_stages_return_last_first": "Some stages begin backward with the last microbatch and "
    "others with the first, so they wait for each other; use one order for all stages.",
}
_1F1B: dict[str, str] = {
    "all_forwards_first": "This is GPipe: all forwards come before any backward, so all "
    "microbatches are in flight at once; begin with backwards after p - 1 - rank forwards.",
    "warm_up_too_long": "There is one forward too many before the pairs of forward and backward; "
    "device rank does p - 1 - rank of them first, and the last device none.",
    "warm_up_too_short": "There is one forward too few before the pairs, so each device waits for "
    "the next one's backward; do p - 1 - rank of them first.",
    "warm_up_alike": "All devices do p - 1 forwards first, so the last one begins its first "
    "backward late; device rank needs p - 1 - rank of them.",
    "warm_up_doubled": "There are twice as many forwards before the pairs as needed; the bubble "
    "is the same with p - 1 - rank, and less is in flight.",
    "warm_up_by_rank": "The later the stage, the more forwards it does first, so the devices wait "
    "for one another for ever; device rank does p - 1 - rank of them first.",
    "warm_up_past_the_last": "With few microbatches there are more forwards before the pairs than "
    "microbatches; take the smaller of both numbers.",
    "backward_then_forward": "In each pair the backward comes first, before the last device has "
    "done any forward; put the forward before it.",
    "no_cool_down": "The backwards of the first p - 1 - rank forwards are missing; do them at the "
    "end of the row.",
    "newest_first": "The backward is that of the newest forward, which is not back from the later "
    "stages yet; take the oldest that is in flight.",
    "never_two_at_once": "Each microbatch is forward and backward before the next begins, so one "
    "device works at a time; do p - 1 - rank forwards before the pairs.",
}
_INTERLEAVED: dict[str, str] = {
    "one_chunk_taken": "One chunk on each device is 1F1B; fewer than 2 must raise ValueError.",
    "contiguous_chunks": "The chunks of a device follow one another (stage rank*chunks + chunk), "
    "so a microbatch stays there and the others wait; use stage chunk*p + rank.",
    "chunk_not_in_stage": "All chunks of a device have the same stage in their cells; write stage "
    "chunk*p + rank.",
    "first_chunk_backward_first": "Backward the first chunk comes first, but gradients come from "
    "the last stage; go through the chunks in reverse order.",
    "warm_up_without_chunks": "The forwards before the pairs are those of 1F1B, too few for any "
    "microbatch to reach the last chunk; do 2(p - rank - 1) + (chunks - 1)p of them.",
    "one_forward_too_few": "There is one forward too few before the pairs, so the last device has "
    "a backward before its forward; do 2(p - rank - 1) + (chunks - 1)p of them.",
    "chunks_left_out": "There is only one stage on each device; each has `chunks` of them: stage "
    "chunk*p + rank.",
    "rest_of_a_round_dropped": "Where the microbatches are no multiple of the devices the last "
    "ones are dropped; raise ValueError instead.",
    "microbatch_by_microbatch": "Each microbatch goes through all chunks of a device before the "
    "next one, but it has to go round the other devices in between; take p microbatches through "
    "one chunk, then the same p through the next.",
    "breadth_first_in_chunks": "All forwards come first, as in the breadth-first schedule, so "
    "everything is in flight at once; do 2(p - rank - 1) + (chunks - 1)p forwards, then pairs.",
    "all_ahead_if_one_round": "Where there are as many microbatches as devices all forwards come "
    "first, as Megatron-LM does it; the pairs have the same bubble, and keep less.",
    "one_forward_too_many": "There is one forward too many before the pairs; do "
    "2(p - rank - 1) + (chunks - 1)p of them.",
}
_ZERO_BUBBLE: dict[str, str] = {
    "weight_gradient_first": "W comes before I of the same microbatch; the stage before waits for "
    "I, and nobody for W, so do I first.",
    "weight_gradients_left_out": "There is no W; the gradient of the weights is the other half of "
    "the backward, so add a W for each I.",
    "whole_backward_and_w": "B is the whole backward, W included; where there is a W, write I in "
    "place of B.",
    "backward_not_split": "This is 1F1B: B makes the stage before wait for gradients of weights "
    "that it does not need; split it into I and W, and let W wait.",
    "no_w_waits": "Each W comes right after its I, so none is left to fill the idle time; let "
    "device rank keep `rank` of them for later.",
    "all_w_at_the_end": "All W come last, so that the first device has all of its own to do when "
    "the others are done, and everything is in flight; let `rank` of them wait, no more.",
    "first_device_waits_most": "The first device lets the most W wait, but it is the last one that "
    "is done early; device rank lets `rank` of them wait.",
    "all_wait_alike": "All devices let p - 1 W wait, but the first one has no idle time at the "
    "end; device rank lets `rank` of them wait.",
    "w_one_too_early": "One W fewer waits than could, so there is idle time at the end; let device "
    "rank keep `rank` of them.",
    "w_one_too_late": "One W more waits than may, so more is in flight than on the first device "
    "of 1F1B; let device rank keep `rank` of them.",
    "h2_as_h1": "This is ZB-H2: twice as many forwards come first, and up to 2p - 1 are in "
    "flight; ZB-H1 does as many first as 1F1B.",
}
_BUBBLE_FRACTION: dict[str, str] = {
    "bubble_over_the_ideal": "This is idle time by work; the makespan is both, so add the idle "
    "time below.",
    "bubble_over_the_microbatches": "This is (p - 1)/m, idle time by the work of one chunk; divide "
    "by the makespan, v*m + p - 1.",
    "bubble_chunks_ignored": "`chunks` is not used; each device works on each microbatch once for "
    "each of its chunks, and idles as few chunks as before.",
    "bubble_divided_by_chunks": "The share is divided by `chunks`, but it is the idle time that "
    "becomes shorter, and the makespan with it; multiply the microbatches below by `chunks`.",
    "bubble_chunks_as_devices": "Each chunk counts as a device; there are p devices, and the "
    "chunks of one take turns.",
    "bubble_of_all_stages": "A device waits for the p - 1 others, not for itself; use p - 1 in "
    "place of p.",
    "bubble_of_forwards": "Work counts forward and backward, idle time forward only; a device "
    "idles in both, so that the share is the same as in one.",
    "bubble_counted_twice": "The idle time is in the makespan twice; a device works v*m chunks and "
    "idles p - 1.",
    "busy_share": "This is the busy share; the idle share is 1 minus it.",
}
_STASH_SIZE: dict[str, str] = {
    "stash_freed_at_i": "I frees the activations, but W needs them still; let W free them.",
    "stash_freed_twice": "I and W both free the activations of one microbatch; only W does.",
    "stash_freed_by_b_only": "Where the backward is in two nothing is freed; W frees, as B does.",
    "stash_never_freed": "All forwards are counted; take one away for each B, and for each W.",
    "stash_idle_cells_counted": "Idle cells count as forwards; they change nothing.",
    "stash_left_at_the_end": "This is what is left at the end of a row; keep the greatest number "
    "on the way.",
    "stash_forwards_first": "Only the forwards before the first backward are counted, but more can "
    "be in flight later; go through the whole row.",
    "stash_after_the_backward": "The number is taken after each backward; it is greatest while a "
    "forward runs, before the backward that frees.",
    "stash_microbatches_not_chunks": "A microbatch that is in flight in two chunks counts once, "
    "but each chunk keeps activations of its own; count cells.",
    "stash_worst_device_for_all": "Each device has the number of the worst one; give each row its "
    "own.",
    "stash_formula_of_1f1b": "This is the formula of 1F1B; other tables keep more or less, so go "
    "through the cells.",
}
SENTENCES: dict[str, str] = (
    _GPIPE | _1F1B | _INTERLEAVED | _ZERO_BUBBLE | _BUBBLE_FRACTION | _STASH_SIZE
)
