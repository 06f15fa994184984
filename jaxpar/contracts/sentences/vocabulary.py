"""Sentences of lesson 12: vocabulary-parallel embedding and loss."""

SENTENCES: dict[str, str] = {
    "embedding_no_offset": "Every device looks ids up in its part as if it began at token 0; "
    "subtract lax.axis_index(axis) * len(table) from them.",
    "embedding_ids_not_masked": "Ids of other devices are looked up, too: JAX counts a negative "
    "index from the end and clips one that is too large; put zeros there before the sum.",
    "embedding_clipped_not_masked": "Ids of other devices are clipped, and add this device's first "
    "or last row; put zeros there before the sum.",
    "embedding_nan_times_zero": "jnp.take gives NaN for an index out of range, and NaN times 0 is "
    "NaN; put zeros there with jnp.where.",
    "embedding_others_hit_row_0": "Ids of other devices look up row 0, which is right, but row 0 "
    "goes into the sum; put zeros there with jnp.where.",
    "embedding_only_above_masked": "Ids below this device's first one are looked up, too: a "
    "negative index counts from the end; ask for 0 <= id as well.",
    "embedding_one_row_too_many": "The first id of the next device counts as this device's last; "
    "ask for id < len(table), not <=.",
    "embedding_outside_clipped": "An id that no device has is clipped to the first or the last "
    "token; it must get zeros.",
    "embedding_outside_hits_row_0": "An id that no device has gets the row of token 0; it must get "
    "zeros.",
    "embedding_rows_dealt_out": "Tokens are taken as dealt out, id % n to each device; the rows "
    "are blocks: device i has ids i * v to (i + 1) * v - 1.",
    "embedding_not_summed": "Each device returns its own rows only; sum over the devices.",
    "embedding_averaged": "The rows are averaged over the devices; only one device has each, so "
    "sum them.",
    "embedding_summed_twice": "The sum is summed again, and is n times too large.",
    "embedding_cuts_gradient": "No gradient reaches the table; leave lax.stop_gradient out.",
    "embedding_gathers_table": "The whole table is gathered; send the rows that are asked for "
    "only, by a sum of them over the devices.",
    "embedding_gathers_parts": "Every device's part of the result is gathered and then summed: n/2 "
    "times the bytes of lax.psum.",
    "embedding_mean_at_the_end": "After the sum all devices have the result already; a mean over "
    "them sends it once more.",
    "embedding_sums_in_float32": "The sum goes over the wire in float32, twice the bytes; only one "
    "device has more than a zero, so nothing is lost in bfloat16.",
    "embedding_whole_table_of_zeros": "Each device makes a table of the whole vocabulary, zeros "
    "but for its rows; take the ids relative to its first row instead.",
    "embedding_whole_one_hot": "Each device makes a one-hot vector of the whole vocabulary for "
    "each id; its own tokens are enough.",
    "loss_local_softmax": "Each softmax is over the tokens of one device; sum exp of the logits "
    "over the devices before the logarithm.",
    "loss_local_maximum": "Each device subtracts its own maximum, and the sums of exp do not fit "
    "together; take lax.pmax of it first.",
    "loss_no_maximum": "exp of large logits is infinite, and of very small ones zero; subtract the "
    "maximum over all devices first, and add it to the logarithm.",
    "loss_sum_of_maxima": "The devices' maxima are summed; take lax.pmax of them.",
    "loss_mean_of_maxima": "Where one logit is far above all others, the loss is infinite: "
    "subtract the maximum of all devices, by lax.pmax, not their mean or another logit; and "
    "subtract the label's logit, not the logarithm of its chance.",
    "loss_maximum_of_batch": "One maximum serves all tokens of the batch, and exp of another "
    "token's logits is all zero; each token needs its own.",
    "loss_maximum_forgotten": "The maximum is subtracted before exp, but not added to the "
    "logarithm of the sum.",
    "loss_no_offset": "Every device looks labels up as if its first token were 0; subtract "
    "lax.axis_index(axis) * v from them.",
    "loss_others_hit_first": "For labels of other devices, the logit of this device's first token "
    "goes into the sum; put 0 there with jnp.where.",
    "loss_clipped_not_masked": "Labels of other devices are clipped, and add the logit of this "
    "device's first or last token; put 0 there with jnp.where.",
    "loss_tokens_dealt_out": "Tokens are taken as dealt out, label % n to each device; they are "
    "blocks: device i has tokens i * v to (i + 1) * v - 1.",
    "loss_label_not_summed": "Only the device that has the label subtracts its logit; lax.psum "
    "it, so that all do.",
    "loss_only_on_owner": "The loss is right on the device that has the label and 0 on all others; "
    "lax.psum the label's logit, and return the loss everywhere.",
    "loss_summed": "The whole loss is summed over the devices, and the logarithm in it counts n "
    "times; sum the label's logit only.",
    "loss_total_averaged": "The sums of exp are averaged over the devices; sum them.",
    "loss_minus_lost": "The sign is turned: the loss is the logarithm of the sum less the label's "
    "logit.",
    "loss_mean_of_tokens": "The mean over all tokens is returned; return the loss of each, [b, t].",
    "loss_in_dtype_of_logits": "The sums are in the dtype of the logits; bfloat16 keeps fewer than "
    "three digits; take the logits to float32 first.",
    "loss_through_pmax": "lax.pmax has no derivative, and needs none here: any number near the "
    "maximum gives the same loss; put its argument into lax.stop_gradient.",
    "loss_local_softmax_backward": "The derivative takes the softmax of this device's tokens; "
    "divide exp by the sum over all devices.",
    "loss_all_subtract_one": "Every device subtracts 1 from the gradient of some token; only the "
    "device that has the label does.",
    "loss_label_cut": "No gradient goes through the label's logit; leave lax.stop_gradient out "
    "there.",
    "loss_gathers_logits": "The logits are gathered, v numbers for each token; send the maximum, "
    "the sum of exp and the label's logit only.",
    "loss_sums_whole_logits": "Every device sums logits of the whole vocabulary; send the "
    "maximum, the sum of exp and the label's logit only.",
    "loss_sums_label_row": "A vector of the vocabulary is summed over the devices to find the "
    "label's logit; sum over the tokens first, and send one number.",
    "loss_gathers_maxima": "Every device gathers all devices' maxima: n/2 times the bytes of "
    "lax.pmax, which needs no derivative here: put its argument into lax.stop_gradient.",
    "loss_mean_at_the_end": "All devices have the loss already; a mean over them sends it once "
    "more.",
    "loss_among_all_logits": "Each device makes room for the logits of the whole vocabulary; its "
    "own are enough, and labels relative to its first token.",
}
