"""StableHLO written by hand, in forms that JAX does not write."""

from jax.interpreters.mlir import ir, make_ir_context

CHANNEL = "channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>"
PAIR = "tensor<2xf32>"


def module(body: str, functions: str = "", mesh: str = '"dp"=2, "tp"=4') -> ir.Module:
    """A module whose main computes with %x, two float32 elements, on each device of a mesh."""
    manual = per_device("%x", body.replace("%x", "%x_local"), "%x_local")
    return plain_module(f"%0 = {manual}", f"sdy.mesh @mesh = <[{mesh}]>\n{functions}")


def per_device(value: str, body: str, result: str) -> str:
    """A computation of each device with %x_local, its whole copy of a value of main."""
    return f"""sdy.manual_computation({value}) in_shardings=[<@mesh, [{{}}]>]
          out_shardings=[<@mesh, [{{}}]>] manual_axes={{"dp", "tp"}} (%x_local: {PAIR}) {{
        {body}
        sdy.return {result} : {PAIR}
      }} : ({PAIR}) -> {PAIR}"""


def plain_module(body: str, functions: str = "") -> ir.Module:
    """The same module without shard_map."""
    main = f"""func.func public @main(%x: {PAIR}) -> {PAIR} {{
      {body}
      return %x : {PAIR}
    }}"""
    return written(f"{main}\n{functions}")


def written(text: str) -> ir.Module:
    """The module that a text describes."""
    with make_ir_context():
        return ir.Module.parse(text)


def permute(value: str = "%x", attributes: str = CHANNEL) -> str:
    """A permute of 8 bytes with one pair along tp."""
    pairs = "source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>"
    return (
        f'"stablehlo.collective_permute"({value}) <{{{attributes}, {pairs}}}> : ({PAIR}) -> {PAIR}'
    )


def all_reduce(groups: str, attributes: str = f"{CHANNEL}, use_global_device_ids") -> str:
    """An all-reduce of 8 bytes."""
    return f"""%sum = "stablehlo.all_reduce"(%x) <{{{attributes}, replica_groups = {groups}}}> ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %c = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %c : tensor<f32>
      }}) : ({PAIR}) -> {PAIR}"""


def loop(
    start: int = 0,
    stop: int = 5,
    step: int = 1,
    direction: str = "LT",
    update: str = "add",
    dtype: str = "i32",
) -> str:
    """A loop around a permute; its counter is the second value that it carries."""
    return f"""
        %start = stablehlo.constant dense<{start}> : tensor<{dtype}>
        %stop = stablehlo.constant dense<{stop}> : tensor<{dtype}>
        %step = stablehlo.constant dense<{step}> : tensor<{dtype}>
        %loop:2 = stablehlo.while(%y = %x, %i = %start) : {PAIR}, tensor<{dtype}>
        cond {{
          %go = stablehlo.compare {direction}, %i, %stop
              : (tensor<{dtype}>, tensor<{dtype}>) -> tensor<i1>
          stablehlo.return %go : tensor<i1>
        }} do {{
          %moved = {permute("%y")}
          %next = stablehlo.{update} %i, %step : tensor<{dtype}>
          stablehlo.return %moved, %next : {PAIR}, tensor<{dtype}>
        }}"""
