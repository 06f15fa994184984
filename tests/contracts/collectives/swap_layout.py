"""Answers to swap_layout: right ones by other routes, and wrong ones."""

from __future__ import annotations

import itertools

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _checked(x, rows, columns):
    n_rows, n_columns = lax.axis_size(rows), lax.axis_size(columns)
    if n_rows * x.shape[0] % n_columns or n_columns * x.shape[1] % n_rows:
        raise ValueError("the blocks do not divide the array")
    return n_rows, n_columns


@right
def all_to_all_permute_all_to_all(x, *, rows, columns):
    """2.25 times x on a mesh of 2 by 4."""
    n_rows, n_columns = _checked(x, rows, columns)
    y = lax.all_to_all(x, columns, split_axis=0, concat_axis=1, tiled=True)
    to = {j * n_rows + i: (i, j) for i in range(n_rows) for j in range(n_columns)}
    pairs = [(part, i * n_columns + j) for part, (i, j) in to.items()]
    y = lax.ppermute(y, (rows, columns), pairs)
    return lax.all_to_all(y, rows, split_axis=1, concat_axis=0, tiled=True)


@right
def gather_then_all_to_all(x, *, rows, columns):
    """5 times x on a mesh of 2 by 4."""
    _, n_columns = _checked(x, rows, columns)
    y = lax.all_gather(x, columns, axis=1, tiled=True)
    y = lax.all_to_all(y, rows, split_axis=1, concat_axis=0, tiled=True)
    return y.reshape(n_columns, -1, y.shape[1])[lax.axis_index(columns)]


def _rounds(n_rows, n_columns):
    """Pieces that must move, in rounds: each device sends one piece at most, and receives one."""
    moves = []
    for i, j, k, m in itertools.product(*map(range, (n_rows, n_columns, n_columns, n_rows))):
        row, column = i * n_columns + k, j * n_rows + m  # of n_rows * n_columns parts of each dim
        i_to, j_to = column // n_columns, row // n_rows
        piece, place = k * n_rows + m, (row % n_rows) * n_columns + column % n_columns
        moves.append((i * n_columns + j, i_to * n_columns + j_to, piece, place))
    n = n_rows * n_columns
    rounds = []
    left = [move for move in moves if move[0] != move[1]]
    while left:
        degree = [max(sum(move[way] == d for move in left) for way in (0, 1)) for d in range(n)]
        matching = _matching(left, degree, n)
        rounds.append(matching)
        left = [move for move in left if move not in matching]
    return rounds, [move for move in moves if move[0] == move[1]]


def _matching(left, degree, n):
    """A matching that covers every device with the most pieces left, as sender and as receiver."""
    counts = np.zeros((2 * n, 2 * n), int)  # padded to a regular graph, as in Konig's theorem
    for source, target, *_ in left:
        counts[source, target] += 1
    most = max(degree)
    for at, to in itertools.product(range(2 * n), repeat=2):
        room = min(most - counts[at].sum(), most - counts[:, to].sum())
        if room > 0 and (at >= n or to >= n):
            counts[at, to] += room
    taken = {}

    def assign(at, seen):
        for to in np.flatnonzero(counts[at]):
            if to not in seen:
                seen.add(to)
                if to not in taken or assign(taken[to], seen):
                    taken[to] = at
                    return True
        return False

    assert all(assign(at, set()) for at in range(2 * n))
    wanted = {(at, to) for to, at in taken.items() if at < n and to < n}
    return [next(m for m in left if m[:2] == pair) for pair in sorted(wanted)]


@right
def piece_by_piece(x, *, rows, columns):
    """Only what is missing: as many bytes as x has on a mesh of 2 by 4, which is the least."""
    n_rows, n_columns = _checked(x, rows, columns)
    b, d = x.shape[0] // n_columns, x.shape[1] // n_rows
    pieces = x.reshape(n_columns, b, n_rows, d).swapaxes(1, 2).reshape(-1, b, d)
    rounds, kept = _rounds(n_rows, n_columns)
    me, spare = lax.axis_index((rows, columns)), len(pieces)
    y = jnp.zeros((spare + 1, b, d), x.dtype)  # the last place is for what nobody needs
    y = y + 0 * x.ravel()[0]
    of_each = [[move for move in kept if move[0] == at] for at in range(spare)]
    for step in range(max(map(len, of_each))):
        y = _put(y, pieces, of_each, step, me, spare)
    for moves in rounds:
        piece, place = np.zeros(spare, int), np.full(spare, spare)
        for source, target, which, at in moves:
            piece[source], place[target] = which, at
        arrived = lax.ppermute(
            pieces[jnp.asarray(piece)[me]], (rows, columns), [move[:2] for move in moves]
        )
        y = y.at[jnp.asarray(place)[me]].set(arrived)
    return y[:-1].reshape(n_rows, n_columns, b, d).swapaxes(1, 2).reshape(n_rows * b, -1)


def _put(y, pieces, of_each, step, me, spare):
    """Places a piece that its device holds already."""
    found = [moves[step] if step < len(moves) else (0, 0, 0, spare) for moves in of_each]
    piece, place = (jnp.asarray([move[k] for move in found])[me] for k in (2, 3))
    return y.at[place].set(pieces[piece])


@wrong("values")
def sent_in_half_the_bytes(x, *, rows, columns):
    return all_to_all_permute_all_to_all(x.astype(jnp.bfloat16), rows=rows, columns=columns).astype(
        x.dtype
    )


@wrong("values")
def sent_in_three_bytes(x, *, rows, columns):
    """The last 8 bits of a float32 are rounded away; the others go as three bytes."""
    bits = lax.bitcast_convert_type(x.astype(jnp.float32), jnp.uint32)
    bits = (bits + 128) & jnp.uint32(0xFFFFFF00)
    return all_to_all_permute_all_to_all(
        lax.bitcast_convert_type(bits, jnp.float32), rows=rows, columns=columns
    ).astype(x.dtype)


@wrong("values")
def exchanged_on_a_square(x, *, rows, columns):
    """Device (i, j) and device (j, i) exchange blocks, which is right where there are as many."""
    n_rows, n_columns = _checked(x, rows, columns)
    small = range(min(n_rows, n_columns))
    pairs = [(i * n_columns + j, j * n_columns + i) for i in small for j in small]
    y = lax.ppermute(x, (rows, columns), pairs)
    return y.reshape(n_rows * x.shape[0] // n_columns, -1)


@wrong("values")
def nothing_sent(x, *, rows, columns):
    n_rows, n_columns = _checked(x, rows, columns)
    return x.reshape(n_rows * x.shape[0] // n_columns, -1)


@wrong("communication")
def gathered_by_every_axis_twice(x, *, rows, columns):
    n_rows, n_columns = _checked(x, rows, columns)
    y = lax.all_gather(x, columns, axis=1, tiled=True)
    y = lax.all_gather(y, rows)  # [n_rows, b, D]
    y = lax.all_gather(y, columns)[0]
    y = y.reshape(n_columns, -1, n_rows, y.shape[-1] // n_rows)
    return y[lax.axis_index(columns), :, lax.axis_index(rows)]


@wrong("communication")
def hidden_in_a_loop(x, *, rows, columns):
    """A loop whose length is data sends one piece in each trip."""
    _checked(x, rows, columns)
    trips = jnp.where(lax.psum(jnp.sum(x != x), (rows, columns)) == 0, 1, 2)

    def send(state):
        step, y = state
        return step + 1, all_to_all_permute_all_to_all(x, rows=rows, columns=columns) + 0 * y

    y = all_to_all_permute_all_to_all(x, rows=rows, columns=columns)
    return lax.while_loop(lambda s: s[0] < trips, send, (0, y))[1]
