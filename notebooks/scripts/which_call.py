"""Call six collectives on all ranks and keep what each rank held, for exercise 02-1.

Name the calls before you read on: the pictures are all that you need.
"""

import torch
import torch.distributed as dist


def play(device: torch.device) -> dict[str, tuple[object, object]]:
    """Return what this rank held before and after each call, by the letter of its picture."""
    rank, n = dist.get_rank(), dist.get_world_size()

    def numbers(*values: int) -> torch.Tensor:
        return torch.tensor(values, device=device)

    def room(count: int = n) -> list[torch.Tensor]:
        return [numbers(0) for _ in range(count)]

    parts = [numbers(7 * rank + 2 * i + 1) for i in range(n)]
    last, middle = n - 1, n // 2
    pictures: dict[str, tuple[object, object]] = {}

    (mine,) = room(1)
    dist.reduce_scatter(mine, parts)
    pictures["A"] = parts, mine

    square = numbers(rank * rank + 3)
    collected = room() if rank == middle else None
    dist.gather(square, collected, dst=middle)
    pictures["B"] = square, collected

    pair = numbers(6 * rank + 2, 6 * rank + 3)
    same = pair.clone()
    dist.broadcast(same, src=last)
    pictures["C"] = pair, same

    incoming = room()
    dist.all_to_all(incoming, parts)
    pictures["D"] = parts, incoming

    five = numbers(5 * rank + 3)
    total = five.clone()
    dist.all_reduce(total)
    pictures["E"] = five, total

    everyone = room()
    dist.all_gather(everyone, square)
    pictures["F"] = square, everyone
    return pictures
