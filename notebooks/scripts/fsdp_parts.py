"""Small models and counters with which notebook 15 looks into `fully_shard`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

#: Rows of a training step on each rank.
ROWS = 8


def make_net(seed: int = 0) -> nn.Sequential:
    """Return three linear layers, whose weights have 96, 48 and 24 rows."""
    torch.manual_seed(seed)
    layers = [nn.Linear(48, 96), nn.ReLU(), nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 24)]
    return nn.Sequential(*layers)


def make_deep(layers: int = 8) -> nn.Sequential:
    """Return equal layers of 256 × 256 numbers."""
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(256, 256, bias=False) for _ in range(layers)])


def linear(net: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a network."""
    return [layer for layer in net.modules() if isinstance(layer, nn.Linear)]


def local(p: torch.Tensor) -> torch.Tensor:
    """Return the part of a parameter that this rank holds now: its shard, or all of it."""
    return p.to_local() if isinstance(p, DTensor) else p


def place(p: torch.Tensor) -> int:
    """Return the address of the memory that a parameter has on this rank now."""
    return local(p).untyped_storage().data_ptr()


def full(t: torch.Tensor) -> torch.Tensor:
    """Put a tensor together from the shards of all ranks; a copy. All ranks call it."""
    t = t.detach()
    return (t.full_tensor() if isinstance(t, DTensor) else t).clone()


def rows(net: nn.Module) -> list[int]:
    """Count the rows that this rank holds of each weight now."""
    return [len(local(layer.weight)) for layer in linear(net)]


def held(net: nn.Module) -> int:
    """Count the bytes of the parameters that the layers of this rank have now."""
    return sum(local(p).nbytes for p in net.parameters())


def watch(net: nn.Module, look: Callable[[nn.Module], object]) -> dict[str, object]:
    """Look at the network at the moments of the steps to come: when a layer is about to compute,
    forward and backward, and between the two. The dict is filled meanwhile."""
    noted = {"start": look(net)}

    def note(moment: str) -> None:
        noted[moment] = look(net)

    def attach(layer: nn.Module, name: int) -> None:
        layer.register_forward_pre_hook(lambda layer, args: note(f"forward {name}"))

        def hook(layer: nn.Module, args: object, out: torch.Tensor) -> None:
            out.register_hook(lambda gradient: note(f"backward {name}"))

        layer.register_forward_hook(hook)

    for number, layer in enumerate(linear(net)):
        attach(layer, number)
    net.register_forward_hook(lambda net, args, out: note("between"))
    return noted


def same(t: torch.Tensor) -> bool:
    """Tell whether all ranks hold the same numbers. All ranks call it."""
    everyone = [torch.empty_like(t) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, t)
    return all(other.equal(everyone[0]) for other in everyone)


def batch(rank: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Return the rows of one rank."""
    generator = torch.Generator().manual_seed(100 + rank)
    return torch.randn(ROWS, 48, generator=generator).to(device)


def loss_of(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return the mean square of the output."""
    return net(x).float().square().mean()


def train(net: nn.Module, optimizer: Optimizer, x: torch.Tensor, steps: int) -> None:
    """Take steps on the same rows."""
    for _ in range(steps):
        loss_of(net, x).backward()
        optimizer.step()
        optimizer.zero_grad()


def sent_by(call: Callable[[], object]) -> int:
    """Count the bytes that this process writes during a call, to sockets above all. (What NCCL
    sends is not written.)"""
    dist.barrier()
    before = psutil.Process().io_counters().write_chars
    call()
    dist.barrier()
    return psutil.Process().io_counters().write_chars - before


class Exchange:
    """Reduce-scatter by an exchange: each rank gets only what it will add up."""

    def allocate(
        self, size: torch.Size, *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: dist.ReduceOp.RedOpType,
        async_op: bool = False,
    ) -> None:
        n = dist.get_world_size(group)
        pieces = torch.empty_like(input_tensor)
        dist.all_to_all_single(pieces, input_tensor, group=group)
        torch.sum(pieces.view(n, -1), dim=0, out=output_tensor)
        if op == dist.ReduceOp.AVG:
            output_tensor /= n


class Block(nn.Sequential):
    """Widen 64 numbers to 256, bend them, drop some, and come back to 64."""

    def __init__(self) -> None:
        layers = [nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 64)]
        super().__init__(*layers)


@contextmanager
def counting_saved(net: nn.Module) -> Iterator[dict[int, int]]:
    """Note the bytes that autograd saves for backward, without those of the network's parameters:
    address → bytes. The memory of what nothing holds any more can be used again."""
    sizes: dict[int, int] = {}

    def pack(t: torch.Tensor) -> torch.Tensor:
        memory = t.untyped_storage()
        if memory.data_ptr() not in map(place, net.parameters()):
            sizes[memory.data_ptr()] = memory.nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        yield sizes


def saved_by(
    net: nn.Module, call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> tuple[int, list[torch.Tensor]]:
    """Call a function with x, and count the bytes that it saves for backward, without those of
    the network's parameters; return them, and the gradients after backward. The random numbers
    are the same at each call."""
    torch.manual_seed(dist.get_rank())
    with counting_saved(net) as sizes:
        out = call(x)
    out.square().mean().backward()
    gradients = [full(p.grad) for p in net.parameters()]
    net.zero_grad()
    return sum(sizes.values()), gradients


def error_of(call: Callable, *args: object) -> str:
    """Return the error that a call raises, its message up to the first comma, or "no error"."""
    try:
        call(*args)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).partition(',')[0]}"
    return "no error"
