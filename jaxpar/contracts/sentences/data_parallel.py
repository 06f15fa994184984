"""Sentences of lesson 05: data parallelism."""

SENTENCES: dict[str, str] = {
    "mean_of_sums": "JAX has already summed the gradients, because `params` were not cast, and the "
    "mean of equal sums is that sum: n times too large. First lax.pcast params to varying.",
    "sum_of_sums": "JAX has already summed the gradients, because `params` were not cast, and they "
    "are summed once more: n*n times too large. First lax.pcast params to varying.",
    "summed_again": "Loss and gradients are summed and not divided, and JAX had already summed the "
    "gradients, because `params` were not cast; first lax.pcast params to varying, then take "
    "lax.pmean of both.",
    "totals_not_divided": "Loss and gradients are summed over the devices and not divided by their "
    "number; take the mean of both.",
    "nothing_averaged": "The loss is that of each device's own part, and the gradients are sums: "
    "JAX made them, because `params` were not cast; first lax.pcast params to varying, then take "
    "the mean of both over the devices.",
    "result_stays_local": "Each device returns loss and gradient of its own part; take the mean of "
    "both over the devices.",
    "gradients_not_divided": "The gradients are summed over the devices, by you or by JAX, and not "
    "divided by their number.",
    "gradients_stay_local": "Each device returns the gradient of its own part; take the mean over "
    "the devices.",
    "loss_stays_local": "The gradients are right, but each device returns the loss of its own "
    "part; take the mean of the loss, too.",
    "gathers_batch": "The batch is gathered, and every device computes all of it; let each keep "
    "its part, and reduce the gradients.",
    "gathers_gradients": "Every device's gradients are gathered and averaged: n/2 times the bytes "
    "of an all-reduce.",
    "reduces_twice": "The gradients are averaged over the devices twice; the second time changes "
    "nothing and sends as much again.",
    "microbatches_not_divided": "The gradients of the m microbatches are added and not divided by "
    "m.",
    "totals_of_microbatches": "Loss and gradients of the m microbatches are added, and neither is "
    "divided by m.",
    "sums_of_microbatches": "Loss and gradients of the m microbatches are not divided by m, and "
    "JAX has summed the gradients over the devices, because `params` were not cast; lax.pcast them "
    "before the loop, and divide both by m.",
    "neither_cast_nor_divided": "The gradients of the m microbatches are not divided by m, and "
    "JAX has summed them over the devices, because `params` were not cast; lax.pcast them before "
    "the loop, and divide by m.",
    "last_microbatch_only": "Only the last microbatch counts; add up loss and gradients of all m.",
    "hidden_in_loop": "`params` are not cast, so JAX sums the gradients over the devices in every "
    "microbatch; lax.pcast them before the loop, and reduce once after it.",
    "reduces_each_microbatch": "The gradients are reduced in every microbatch, m times; add them "
    "up on each device, and reduce the sum once, after the loop.",
    "loss_in_loop": "The loss is reduced in every microbatch; keep it on the device, and reduce "
    "its mean once, after the loop.",
    "unrolls_microbatches": "A Python loop puts all m microbatches into one program, and the "
    "compiler holds what many of them need at once; use lax.scan.",
    "vmaps_microbatches": "vmap computes all microbatches at once, so the activations and "
    "gradients of all m are held; use lax.scan.",
    "stacks_gradients": "The gradients of all m microbatches are kept and averaged at the end; add "
    "each to one accumulator, the carry of lax.scan.",
    "keeps_every_microbatch": "One backward pass over all microbatches keeps the activations of "
    "all m; differentiate inside the loop, one microbatch at a time.",
    "last_bucket_not_sent": "The bucket that is open after the last leaf is never reduced.",
    "unpacks_in_reverse": "A bucket is packed from its first leaf on and unpacked from its last; "
    "use one order.",
    "unpacks_from_start": "Every leaf of a bucket is read from its start; begin where the leaf "
    "before it ended.",
    "one_bucket": "All leaves are in one bucket; open the next where a leaf does not fit.",
    "bucket_for_each_leaf": "Each leaf is reduced by itself, as lax.pmean of a list does, too; "
    "concatenate the leaves of a bucket first.",
    "last_leaf_over": "A bucket takes one leaf more than fits; look before the leaf joins.",
    "never_quite_full": "A leaf that fills the bucket exactly is turned away; it fits.",
    "bytes_as_elements": "`bucket_bytes` is compared with a number of elements; multiply by the "
    "bytes of one.",
    "last_leaf_first": "The buckets are filled from the last leaf; go in the order of "
    "jax.tree.leaves.",
    "cuts_leaves": "Leaves are cut where a bucket is full; a leaf that does not fit opens the next "
    "bucket.",
    "mean_of_means": "The means of the devices are averaged, though they have different numbers of "
    "real values; sum the totals and the numbers over the devices, then divide.",
    "nan_of_padding": "Each device divides by its own number of real values, and one that has none "
    "makes nan of 0/0, which spoils the mean; sum totals and numbers over the devices, then "
    "divide.",
    "nan_stays_local": "Each device returns the mean of its own values, and nan where it has no "
    "real one; sum totals and numbers over the devices, then divide.",
    "padding_counted": "The total is divided by the number of all values; count the real ones.",
    "padding_averaged": "The mask is not used: padding is averaged with the real values.",
    "padding_added": "The padded values are in the total; leave them out with the mask.",
    "numerator_only": "The totals are summed over the devices, but divided by the number of real "
    "values on this device; sum the numbers, too.",
    "numerator_as_mean": "The mean of the devices' totals is divided by the number on all devices: "
    "n times too small; take the sum of the totals.",
    "mean_stays_local": "Each device returns the mean of its own values; sum totals and numbers "
    "over the devices.",
    "sum_of_real": "This is the sum of the real values; divide it by their number.",
    "masked_mean_cuts_gradient": "The gradient is 1 over the number of real values on this device; "
    "it is 1 over their number on all devices.",
    "gathers_values": "Every device's values are gathered; a total and a number from each are "
    "enough.",
    "adds_devices_first": "The values are summed over the devices one by one; sum them on each "
    "device first, and send a total and a number.",
}
