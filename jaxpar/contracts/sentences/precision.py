"""Sentences of lesson 07: mixed precision."""

SENTENCES: dict[str, str] = {
    "no_reset_after_growth": "The count goes on after a growth; it begins at 0 again, or the scale "
    "never grows a second time.",
    "no_reset_after_overflow": "The count survives an overflow; it must be 0, so that "
    "growth_interval steps without one come before the next growth.",
    "counts_overflows": "A step that overflowed is counted like the others; the count is 0 after "
    "it.",
    "grows_a_step_late": "The scale grows one step late: this step counts, too, so compare "
    "good_steps + 1 with growth_interval.",
    "grows_from_a_step_early": "The scale grows one step early: good_steps + 1 must have reached "
    "growth_interval.",
    "grows_every_step": "The scale grows after every step without overflow; growth_interval of "
    "them must come together.",
    "never_grows": "The scale never grows; after growth_interval steps without overflow it is "
    "multiplied by factor.",
    "below_the_minimum": "The scale falls below minimum; take the larger of the two.",
    "minimum_as_maximum": "After an overflow the scale is at most minimum; it must be at least "
    "minimum.",
    "flag_turned_round": "An overflow is taken for a good step, and a good step for an overflow: "
    "`grads_finite` is true where all is well.",
    "factor_of_two": "The scale changes by 2; use `factor`.",
    "in_float32": "No gradient overflows, because nothing is computed in float16; give loss_fn a "
    "float16 copy of the parameters.",
    "cast_back_to_float32": "The parameters are rounded to float16 and converted back before "
    "loss_fn, so that its products are of float32 values; give it the float16 copy.",
    "scaled_after_the_cast": "Small gradients are 0 in float16, because the loss was not scaled "
    "before it was differentiated; scaled after the cast, they stay 0.",
    "scaled_in_float16": "The loss is scaled in float16, where this scale is infinite; scale it in "
    "float32, as loss_fn returns it.",
    "not_unscaled": "The gradients are not divided by scale before the optimizer takes them.",
    "unscaled_in_float16": "The gradients are divided by scale in float16, where they become 0 "
    "again; convert them to float32 first.",
    "master_in_float16": "The update is added to the float16 copy, which rounds it away; add it to "
    "`master`, in float32.",
    "decay_of_rounded_weights": "The optimizer is given the float16 copy of the parameters, from "
    "which weight decay comes out rounded; give it `master`.",
    "steps_by_zeros": "After an overflow the optimizer makes a step by gradients of 0: its means "
    "decay, its count moves, and weights decay. Nothing may change.",
    "count_advanced": "After an overflow the optimizer's count still moves on; choose it, too, "
    "with jnp.where.",
    "state_moves_on": "After an overflow the parameters are kept, and the state takes the infinite "
    "gradients; keep the old state, too.",
    "overflow_ignored": "Gradients that are not finite reach the parameters; where there is one, "
    "keep everything as it was.",
    "only_the_loss_checked": "Only the loss is checked, which may be finite where gradients are "
    "not; check every gradient.",
    "infinite_parts_left_out": "What is not finite is set to 0, and the rest makes a step; one "
    "infinite element means that nothing may change.",
}
