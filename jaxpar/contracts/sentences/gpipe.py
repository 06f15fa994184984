"""Sentences of lesson 15: the forward pass of GPipe."""

SENTENCES: dict[str, str] = {
    "outputs_too_early": "The outputs are those of the first m ticks; the last device makes the "
    "first result at tick n-1, so leave out the n-1 ticks before.",
    "one_tick_too_few": "The last microbatch is missing: it enters at tick m-1, and needs n-1 "
    "ticks more; run m+n-1 ticks.",
    "m_ticks_only": "The loop ends when the last microbatch enters; run n-1 ticks more, until it "
    "has gone through all stages.",
    "sends_backwards": "Results go to the previous device; the pairs of lax.ppermute are (source, "
    "target), so send from i to i+1.",
    "outputs_everywhere": "Devices before the last return what they made for others; return zeros "
    "there, by jnp.where on lax.axis_index.",
    "adds_own_input": "Every device feeds its own microbatches; only those of device 0 count, the "
    "others take what arrives.",
    "feeds_the_next": "Device 0 takes microbatch t+1 at tick t, and the first one never; take "
    "microbatch t.",
    "feeds_the_first": "Device 0 takes microbatch 0 in every tick; take microbatch t at tick t.",
    "one_stage_only": "The last device sends its own microbatches through its own stage; those of "
    "device 0 must go through all stages, from device to device.",
    "outputs_on_all": "All devices have the outputs; they belong on the last one only, and a sum "
    "over the devices is not needed.",
    "outputs_on_first": "The outputs are sent to device 0; leave them on the last device.",
    "results_of_first": "Device 0 returns what it made itself, and the others zeros; the results "
    "are on the last device, where lax.axis_index is n-1.",
    "zeros_on_all": "All devices return zeros; the last one, where lax.axis_index is n-1, keeps "
    "its results.",
    "cuts_gradient": "No gradient goes from a stage to the one before it; remove stop_gradient "
    "from what is sent.",
    "misses_ramp": "What enters in the first n-1 ticks gets no gradient; differentiate all m+n-1 "
    "ticks.",
    "every_stage_everywhere": "The parameters of all stages are gathered, and every device "
    "computes all of them; leave each stage where it is, and send activations.",
    "one_after_the_other": "A microbatch starts when the one before it has left the last stage, "
    "which sends m(n-1) times; let one start in every tick.",
    "one_large_batch": "All microbatches go from stage to stage together, and one device works at "
    "a time; send one microbatch in a tick.",
    "gathers_stage_outputs": "Every device gets the results of all by an all-gather; it needs that "
    "of the previous device only, which lax.ppermute sends.",
    "sends_by_sum": "Results are put into zeros and summed over the devices; lax.ppermute sends "
    "one array to one device.",
    "through_first_device": "Every result goes back to device 0, which hands it out again; send it "
    "from a device to the next.",
}
