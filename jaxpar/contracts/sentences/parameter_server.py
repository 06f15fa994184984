"""Sentences of lesson 05: the parameter server."""

SENTENCES: dict[str, str] = {
    "server_is_zero": "Device 0 is always taken for the server; use `server`.",
    "updates_for_itself": "Every device returns what update_fn gives on it; only the server's "
    "result counts, and must be sent to all.",
    "server_keeps_result": "The server returns the new parameters, and the others return zeros; "
    "send them the result.",
    "server_alone": "The server updates with the gradient of its own part; it needs the mean of "
    "all devices' gradients.",
    "mean_of_updates": "Each device updates with its own gradient, and the server averages the "
    "results; average the gradients, and update once.",
    "all_reduce_for_server": "The mean gradients come from an all-reduce, yours or, where `params` "
    "are not cast to varying, JAX's own; send each device's gradients to the server only.",
    "all_reduces_both_ways": "Gradients and parameters both go by an all-reduce, which makes every "
    "device a server; send the gradients to the server only, and broadcast its result.",
    "back_by_all_reduce": "The result comes back by an all-reduce of zeros and one result; "
    "broadcast it from the server.",
    "batch_to_server": "The batch is sent to the server, which computes all gradients itself; let "
    "each device compute its own, and send these.",
}
