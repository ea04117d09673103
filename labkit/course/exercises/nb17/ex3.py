"""Exercise 17-3: shard an optimizer's state over the ranks, and account for its memory."""

from __future__ import annotations

from ...answers import edit, whole
from ...exercise import Exercise, Goal, Mistake
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
    share_bytes,
    sum_of_gradients,
    trained,
    trial,
)

EXERCISE = Exercise(
    id="17-3",
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
            shown_by={"adds up": edit("self.share.grad /= world_size", "")},
        ),
        Mistake(
            "The weights are unchanged: let the optimizer step, gather all shares, and write them "
            "into the parameters that were passed.",
            when=after_sgd(lambda case, rank, n: as_row(first_weights(case))),
            shown_by={
                "keeps the new weights": edit(
                    "nn.utils.vector_to_parameters(whole, self.params)", ""
                ),
            },
        ),
        Mistake(
            "Each rank trains on its own gradients, and the weights differ between ranks. "
            "Reduce the gradients over the ranks before the step.",
            when=after_sgd(lambda case, rank, n: trained(case, rank, n, own_gradient)),
            shown_by={
                "a plain optimizer": whole("""
                    class ShardedOptimizer:
                        def __init__(self, params, make, **options):
                            self.optimizer = make(params, **options)

                        def step(self):
                            self.optimizer.step()

                        def state_bytes(self):
                            entries = self.optimizer.state.values()
                            return sum(t.nbytes for entry in entries for t in entry.values())
                """),
            },
        ),
        Mistake(
            "Each rank updates its piece with its own gradient. It needs the mean of all ranks' "
            "gradients for this piece: reduce_scatter_tensor gives their sum.",
            when=after_sgd(from_own_pieces),
            shown_by={
                "its own gradient": edit(
                    "dist.reduce_scatter_tensor(self.share.grad, row(p.grad for p in self.params))",
                    "self.share.grad = row(p.grad for p in self.params).chunk(world_size)"
                    "[rank].clone()",
                    "self.share.grad /= world_size",
                    "",
                ),
            },
        ),
        Mistake(
            "Each rank has updated its own piece of the weights only. Gather the pieces of all "
            "ranks after the step.",
            when=after_sgd(own_piece_only),
            shown_by={
                "does not gather": edit(
                    "dist.all_gather_into_tensor(whole, self.share)",
                    "whole.chunk(world_size)[rank].copy_(self.share)",
                ),
            },
        ),
        Mistake(
            "The updates are right, but the pieces begin at zero: fill each with its part of the "
            "weights.",
            when=after_sgd(from_zero),
            shown_by={
                "begins at zero": edit(
                    "row(params).chunk(world_size)[rank].clone()",
                    "torch.zeros_like(row(params).chunk(world_size)[rank])",
                ),
            },
        ),
        Mistake(
            "The first step is right, but the momentum is lost: you make a new optimizer in every "
            "step. Make it once, in __init__.",
            when=after_sgd(
                lambda case, rank, n: trained(case, rank, n, mean_of_gradients, anew=True)
            ),
            shown_by={
                "a new optimizer in every step": edit(
                    "self.optimizer = make([self.share], **options)",
                    "self.make = lambda: make([self.share], **options)",
                    "self.optimizer.step()",
                    "self.optimizer = self.make()\nself.optimizer.step()",
                ),
            },
        ),
        Mistake(
            "The weights are right, but a rank has more state than its share. Give the optimizer "
            "this rank's piece only, of ⌈N / world_size⌉ numbers, not the parameters: it keeps "
            "state for what it updates.",
            when=lambda yours, expected, n: any(y[1] is False or y[4] is False for y in yours),
            shown_by={
                "the whole state on every rank": whole("""
                    class ShardedOptimizer:
                        def __init__(self, params, make, **options):
                            self.params = params
                            self.optimizer = make(params, **options)

                        def step(self):
                            row = nn.utils.parameters_to_vector(p.grad for p in self.params)
                            dist.all_reduce(row)
                            row /= world_size
                            sizes = [p.numel() for p in self.params]
                            for p, part in zip(self.params, row.split(sizes)):
                                p.grad = part.view_as(p)
                            self.optimizer.step()

                        def state_bytes(self):
                            entries = self.optimizer.state.values()
                            return sum(t.nbytes for entry in entries for t in entry.values())
                """),
            },
        ),
        Mistake(
            "state_bytes() counts numbers, not bytes: t.nbytes has the bytes of a tensor.",
            when=lambda yours, expected, n: all(
                y[2] == -share_bytes(CASES[0], n) * 3 // NUMBER for y in yours
            ),
            shown_by={"counts numbers": edit("t.nbytes", "t.numel()")},
        ),
        Mistake(
            "state_bytes() is not what the optimizer's state takes. Add up all tensors of all "
            "entries of optimizer.state, Adam's count of steps among them.",
            when=lambda yours, expected, n: any(y[2] or y[5] for y in yours),
            shown_by={
                "two numbers for each": edit(
                    "sum(t.nbytes for entry in self.optimizer.state.values() for t in "
                    "entry.values())",
                    "2 * self.share.nbytes",
                ),
                "the first tensor of each entry": edit(
                    "for t in entry.values())", "for t in list(entry.values())[:1])"
                ),
            },
        ),
        Mistake(
            "The result is right, but a step takes more than two collectives. Reduce all gradients "
            "as one row, and gather all weights as one.",
            missed="collectives",
            shown_by={
                "reduces every gradient": edit(
                    "dist.reduce_scatter_tensor(self.share.grad, row(p.grad for p in self.params))",
                    "for p in self.params:\n"
                    "    dist.all_reduce(p.grad)\n"
                    "self.share.grad = row(p.grad for p in self.params)"
                    ".chunk(world_size)[rank].clone()",
                ),
            },
        ),
    ),
    another=whole("""
        class ShardedOptimizer:
            def __init__(self, params, make, **options):
                self.params = list(params)
                sizes = [p.numel() for p in self.params]
                flat = torch.cat([p.detach().flatten() for p in self.params])
                self.sizes, self.longest = sizes, -(-len(flat) // world_size)
                self.begin, self.end = self.longest * rank, self.longest * (rank + 1)
                self.mine = flat.new_zeros(self.longest)
                piece = flat[self.begin : self.end]
                self.mine[: len(piece)] = piece
                self.inner = make([self.mine], **options)

            def step(self):
                grads = torch.cat([p.grad.flatten() for p in self.params])
                dist.all_reduce(grads)
                piece = grads[self.begin : self.end] / world_size
                self.mine.grad = torch.zeros_like(self.mine)
                self.mine.grad[: len(piece)] = piece
                self.inner.step()
                pieces = [torch.empty_like(self.mine) for _ in range(world_size)]
                dist.all_gather(pieces, self.mine)
                flat = torch.cat(pieces)[: sum(self.sizes)]
                with torch.no_grad():
                    for p, part in zip(self.params, flat.split(self.sizes)):
                        p.copy_(part.view_as(p))

            def state_bytes(self):
                state = [t for entry in self.inner.state.values() for t in entry.values()]
                return sum(t.numel() * t.element_size() for t in state)
    """),
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
