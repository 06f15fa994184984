"""Sentences of lesson 11: tensor parallelism."""

SENTENCES: dict[str, str] = {
    "partial_results": "Each device returns its part of a sum; lax.psum adds them, after the last "
    "product.",
    "result_scattered": "Each device returns its part of the result; x is whole on all devices, "
    "and so must be the result: lax.psum, not lax.psum_scatter.",
    "summed_twice": "The result is summed twice, and n times too large: after one lax.psum it is "
    "equal on all devices.",
    "averaged_over_axis": "The parts are averaged; they are parts of a sum, so use lax.psum.",
    "columns_summed": "x times this device's columns is summed over the devices, too, so that "
    "columns of different hidden elements are added; sum after w_down only.",
    "gate_and_up_swapped": "silu is taken of x @ w_up; take it of x @ w_gate.",
    "silu_of_product": "silu is taken of the product of gate and up; take it of the gate alone, "
    "then multiply.",
    "gate_by_gelu": "The gate goes through gelu; SwiGLU has silu.",
    "gate_by_sigmoid": "The gate goes through sigmoid; silu(g) is g * sigmoid(g).",
    "gradient_summed_twice": "The gradient of x is summed twice, and n times too large: JAX sums "
    "it where x becomes varying, so a function with lax.psum in its backward pass adds a second "
    "sum. lax.pcast(x, axis, to='varying') is Megatron's f.",
    "f_left_implicit": "JAX makes x varying at each of its uses, and each sends an all-reduce of "
    "its own in the backward pass; lax.pcast(x, axis, to='varying') once, before the first use.",
    "tensor_weights_gathered": "All weights are gathered, and every device computes everything; "
    "use your own columns and rows, and sum the results.",
    "hidden_gathered": "The hidden elements are gathered, and w_down with them; multiply your own "
    "by your rows of w_down, and sum the results.",
    "partials_gathered": "Every device's partial result is gathered, then added: n/2 times the "
    "bytes of lax.psum.",
    "sum_typed_varying": "What lax.all_gather gives is equal on all devices, but typed as varying, "
    "so its gradient is summed once more; lax.psum sends as much, and types it as equal.",
    "kv_head_in_turn": "Device i uses kv head i % num_kv_heads; neighbours share a kv head: use "
    "i * num_kv_heads // n.",
    "kv_head_zero": "Every device uses kv head 0; device i needs head i * num_kv_heads // n.",
    "kv_head_divided": "Device i uses kv head i // num_kv_heads; not num_kv_heads but n // "
    "num_kv_heads neighbours share one: use i * num_kv_heads // n.",
    "kv_head_of_index": "Device i uses kv head i, and lax.dynamic_slice moves what is too large "
    "to the last one; device i needs head i * num_kv_heads // n.",
    "heads_interleaved": "The columns are split as [h, heads]; they are head after head, so "
    "reshape them to [heads, h].",
    "kv_heads_tiled": "The kv heads are repeated as a whole, 0 1 0 1; each serves query heads that "
    "stand one after another, 0 0 1 1: jnp.repeat, not jnp.tile.",
    "mask_lost": "Positions see those after them; set their scores to -inf before softmax.",
    "masked_by_zero": "The scores of later positions are set to 0, and softmax gives them weight "
    "all the same; set them to -inf.",
    "masked_after_softmax": "Weights are set to 0 after softmax, so that the others do not add up "
    "to 1; set scores to -inf before it.",
    "softmax_over_queries": "Softmax is taken over the queries; the weights of one query, over "
    "the keys, must add up to 1.",
    "scale_lost": "The scores are not divided by sqrt(h).",
    "scale_by_d_model": "The scores are divided by sqrt(d); divide by sqrt(h), h the size of a "
    "head.",
    "scale_without_root": "The scores are divided by h; divide by its square root.",
    "kv_gradient_of_one_device": "The gradients of whole w_k and w_v are those of one device; all "
    "devices that use a matrix must add theirs.",
    "kv_gradient_averaged": "The gradients of whole w_k and w_v are averaged over the devices; "
    "each device has a part of a sum.",
    "few_keys_summed": "Every device computes the keys and values of all heads, and the gradients "
    "of these are summed, b*t*k elements each; cut your head's columns out of w_k and w_v first: "
    "then the gradients of the weights are summed, d*k elements.",
    "heads_not_checked": "Sizes that do not fit are not refused; raise ValueError if n does not "
    "divide num_heads, or if of num_kv_heads and n neither divides the other.",
    "all_whole": "Every matrix is whole on every device: nothing is tensor parallel.",
    "only_mlp_split": "Only the MLP is split; split attention by heads, too.",
    "only_attention_split": "Only attention is split; split the MLP, too.",
    "kv_whole": "key and value are whole on every device; they have as many columns of heads to "
    "split as query.",
    "scales_split": "Scales of norms are split, too; they work on whole x, which every device has.",
    "rows_and_columns_swapped": "What comes first is split by rows, and output and down by "
    "columns: the compiler sums what lies between, and gathers the result. Columns first, rows "
    "last.",
    "columns_everywhere": "output and down are split by columns, too: the compiler gathers what "
    "they multiply, and their result; split them by rows.",
    "rows_everywhere": "query, key, value, gate and up are split by rows: the compiler sums each "
    "of their products; split them by columns.",
    "kv_by_rows": "key and value are split by rows, and their products are summed: split them by "
    "columns, as query is.",
    "dim_l_split": "Dim l of stacked layers is split, so the compiler gathers a layer to use it; "
    "split its columns or rows.",
    "dims_of_one_layer": "A spec begins at the first dim, which is l where layers are stacked; "
    "count dims from the last.",
    "largest_dim_split": "The larger dim of each matrix is split, whatever it is for; whether by "
    "rows or by columns, its place in the layer says.",
}
