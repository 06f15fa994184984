"""Sentences of lesson 08: activation checkpointing."""

SENTENCES: dict[str, str] = {
    "one_layer_of_each": "One layer of each segment is called; all l are to be.",
    "keeps_everything": "Everything that the layers need for their gradients is kept; let a "
    "jax.checkpoint of a whole segment keep its input alone.",
    "checkpoints_each_layer": "The input of every layer is kept, all l; checkpoint a segment, of "
    "l / segments layers, so that the inputs of segments are kept.",
    "checkpoints_the_whole": "One checkpoint is around all layers, so the backward pass goes "
    "forward through all of them and then holds what all keep; checkpoint each segment.",
    "segments_of_that_size": "`segments` is the number of segments, not of the layers in one: each "
    "has l / segments layers.",
    "saves_the_products": "The policy of your jax.checkpoint keeps what products give in every "
    "layer; without a policy it keeps the arguments alone.",
    "checkpoints_twice": "The forward pass is computed three times, and as much is kept as if it "
    "were two times: one checkpoint is around another. One, around a segment, is enough.",
    "rest_left_out": "Where `segments` does not divide the layers, raise ValueError yourself; else "
    "another error comes, or the last layers are left out without a word.",
    "one_layer": "This is what one layer keeps; multiply by the number of layers.",
    "all_split": "What is outside attention and MLP (10 bytes an element) is divided by tp without "
    "sequence parallelism, too; then every device holds it whole.",
    "none_split_by_sequence": "Sequence parallelism makes no difference; with it a device holds "
    "1/tp of what is outside attention and MLP, too.",
    "attention_whole": "The 5*heads*s*s*b bytes of softmax and dropout are not divided by tp; each "
    "device has heads / tp of the heads.",
    "selective_keeps_attention": "The 5*heads*s*s*b bytes of softmax and dropout are kept under "
    "selective, too; they are what it computes again.",
    "full_split": "Under full the layer's input is divided by tp with sequence parallelism; here "
    "each device keeps it whole, as the paper's table has it.",
    "full_keeps_nothing": "Full keeps nothing; without the input of each layer there is nothing to "
    "compute it from again.",
    "masks_left_out": "The dropout masks are left out: a byte for each element of two outside and "
    "of one in attention.",
    "activations_as_elements": "The result is half of the right one; an element takes 2 bytes.",
    "activations_in_32_bits": "The result is twice the right one; an element takes 2 bytes, not 4.",
    "unknown_remat_is_none": "A `remat` other than none, selective and full must raise ValueError.",
}
