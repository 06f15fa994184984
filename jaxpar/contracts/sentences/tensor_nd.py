"""Sentences of lesson 13: products in two and three dims."""

SENTENCES: dict[str, str] = {
    "x_along_rows": "The blocks of x come from along `rows`; those that y_ij needs are in the same "
    "row of devices, along `cols`.",
    "w_along_cols": "The blocks of w come from along `cols`; those that y_ij needs are in the same "
    "column of devices, along `rows`.",
    "blocks_along_wrong_axes": "Blocks of x come from along `rows`, of w from along `cols`; x goes "
    "along `cols`, and w along `rows`.",
    "inner_blocks_interleaved": "The rows of w's blocks are interleaved, and those of x's columns "
    "are not; gather both with tiled=True.",
    "round_missing": "One round is missing: there are q, one for each block of the inner dim.",
    "products_summed": "The products of different devices are summed over `rows`; y_ij is a sum of "
    "products that device (i, j) computes itself, of blocks that come to it.",
    "own_blocks_only": "Each device multiplies its own blocks only, whose inner numbers differ; "
    "bring the other blocks of its row and column.",
    "cannon_not_skewed": "Blocks move on, but do not fit at the start: first move row i of x by i "
    "places, and column j of w by j.",
    "gradient_of_own_block": "The gradient of a block is that of this device's own use of it; sum "
    "over all that used it, as the derivative of lax.all_gather does.",
    "product_whole": "Every device returns the whole product; it must return its own block.",
    "block_gradients_all_reduced": "The gradient of what was gathered is summed whole on all "
    "devices: twice the bytes of a reduce-scatter, which is the derivative of lax.all_gather "
    "without `to`.",
    "blocks_gathered_by_sum": "Blocks are put into zeros and summed all at once: twice the bytes "
    "of lax.all_gather, and as much memory.",
    "blocks_gathered_over_both": "Whole matrices are gathered on every device; a block of y needs "
    "one row of blocks of x, and one column of blocks of w.",
    "blocks_gathered_in_rounds": "Every round gathers all blocks and uses one: q times the bytes; "
    "gather once, or bring one block in each round.",
    "rounds_unrolled": "A Python loop puts all rounds into one program, and the compiler brings "
    "all blocks before it multiplies; use lax.scan.",
    "rounds_kept": "The blocks of all rounds are kept and multiplied at the end; multiply in each "
    "round, and carry the sum.",
    "square_not_checked": "A mesh with different sizes of `rows` and `cols` is not refused; "
    "compare lax.axis_size of both, and raise ValueError.",
    "summed_over_depth": "The results are summed over `depth`; each square has its own rows of x, "
    "and of y.",
    "depth_not_summed": "The gradient of w is that of one square; sum it over `depth`.",
    "depth_averaged": "The gradient of w is averaged over `depth`; sum it.",
    "depth_cast_implicit": "The gradient of w is summed over `depth` as a whole column of blocks; "
    "lax.pcast(w, depth, to='varying') before w is gathered leaves one block to sum.",
    "w_over_depth": "w is sent over `depth`; it is equal in all squares already.",
    "x_over_depth": "x is gathered over `depth`, and every square computes all rows; each needs "
    "its own rows only.",
    "x_over_x": "x is gathered over `x_axis`; the other rows of block x_il are along `y_axis`.",
    "w_over_y": "w is gathered over `y_axis`; the other columns of block w_lj are along `x_axis`.",
    "x_and_w_over_wrong_axes": "x is gathered over `x_axis`, and w over `y_axis`; change them.",
    "rows_of_blocks_interleaved": "The parts are interleaved; lax.all_gather with tiled=True puts "
    "them one after the other.",
    "products_not_summed": "Each device keeps rows of its own product; sum over `z_axis`.",
    "summed_over_y": "Products are summed over `y_axis`; those of one block y_ij are along "
    "`z_axis`.",
    "columns_scattered": "Each device keeps columns of the sum; the result has its rows split over "
    "`z_axis`.",
    "all_rows_of_block": "Each device of `z_axis` returns all rows of its block; leave it its own "
    "by lax.psum_scatter.",
    "x_over_x_and_y": "x is gathered over `x_axis`, too; a device computes the rows of its own "
    "place on `x_axis` only.",
    "product_all_reduced": "The whole block is summed on all devices of `z_axis`, and rows are cut "
    "from it: twice the bytes of lax.psum_scatter.",
    "inner_dim_gathered": "x and w are gathered over `z_axis`, too, and every device there "
    "computes the same block; multiply your own part of the inner dim, and sum.",
    "matrices_gathered": "Whole matrices are gathered over all three axes; one block of each is "
    "enough.",
    "rows_of_x_gathered": "Rows of x are gathered over `x_axis`, and not used.",
}
