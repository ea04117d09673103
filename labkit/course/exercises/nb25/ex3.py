"""Exercise 25-3: shard an optimizer's state over the ranks, and account for its memory."""

from __future__ import annotations

from ...exercise import Exercise, Goal, Mistake
from ...mistakes import rank_simulated, some_rank
from .sharded import (
    CASES,
    NUMBER,
    SETUP,
    after_sgd,
    as_row,
    expected,
    first_weights,
    from_own_pieces,
    from_zero,
    labels,
    mean_of_gradients,
    own_gradient,
    own_piece_only,
    sum_of_gradients,
    trained,
    trial,
)

EXERCISE = Exercise(
    id="25-3",
    title="Shard an optimizer",
    answer="ShardedOptimizer",
    trial=trial,
    expected=expected,
    setup=SETUP,
    entries=labels,
    goals=(Goal("collectives", most=lambda n: 2 * sum(case.steps for case in CASES)),),
    mistakes=(
        Mistake(
            "You add the gradients up. The mean over the ranks is the sum divided by world_size. "
            "(Adam hides this: it divides every gradient by its own size.)",
            when=after_sgd(lambda case, rank, n: trained(case, rank, n, sum_of_gradients)),
        ),
        Mistake(
            "The weights are unchanged: let the optimizer step, gather all shares, and write them "
            "into the parameters that were passed.",
            when=after_sgd(lambda case, rank, n: as_row(first_weights(case))),
        ),
        Mistake(
            "Each rank trains on its own gradients, and the weights differ between ranks. "
            "Reduce the gradients over the ranks before the step.",
            when=after_sgd(lambda case, rank, n: trained(case, rank, n, own_gradient)),
        ),
        Mistake(
            "Each rank updates its piece with its own gradient. It needs the mean of all ranks' "
            "gradients for this piece: reduce_scatter_tensor gives their sum.",
            when=after_sgd(from_own_pieces),
        ),
        Mistake(
            "Each rank has updated its own piece of the weights only. Gather the pieces of all "
            "ranks after the step.",
            when=after_sgd(own_piece_only),
        ),
        Mistake(
            "The updates are right, but the pieces begin at zero: fill each with its part of the "
            "weights.",
            when=after_sgd(from_zero),
        ),
        Mistake(
            "The first step is right, but the momentum is lost: you make a new optimizer in every "
            "step. Make it once, in __init__.",
            when=after_sgd(
                lambda case, rank, n: trained(case, rank, n, mean_of_gradients, anew=True)
            ),
        ),
        Mistake(
            "The weights are right, but a rank has more state than its share. Give the optimizer "
            "this rank's piece only, of ⌈N / world_size⌉ numbers, not the parameters: it keeps "
            "state for what it updates.",
            when=some_rank(lambda mine, its: mine[1] is False or mine[4] is False),
        ),
        Mistake(
            "state_bytes() counts numbers, not bytes: t.nbytes has the bytes of a tensor.",
            when=rank_simulated(lambda r, n: (1 - NUMBER) * CASES[0].share(n), lambda own: own[2]),
        ),
        Mistake(
            "state_bytes() is not what the optimizer's state takes. Add up all tensors of all "
            "entries of optimizer.state, Adam's count of steps among them.",
            when=some_rank(lambda mine, its: mine[2] or mine[5]),
        ),
        Mistake(
            "The result is right, but a step takes more than two collectives. Reduce all gradients "
            "as one row, and gather all weights as one.",
            missed="collectives",
        ),
    ),
    hints=(
        "Think of all parameters as one row of numbers, cut into world_size pieces of equal "
        "length. Every rank has an ordinary optimizer, over a copy of its own piece.",
        "A step: the gradients as a row, reduce-scattered, give the sum of this rank's piece; its "
        "mean is the piece's .grad; the optimizer steps; an all-gather of the pieces is the new "
        "row of weights.",
        "nn.utils.parameters_to_vector makes a row of tensors, F.pad(row, (0, k)) adds k zeros, "
        "and nn.utils.vector_to_parameters writes a row into parameters; the padding at its end is "
        "left over. optimizer.state.values() are dicts of tensors.",
    ),
)
