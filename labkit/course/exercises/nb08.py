"""The exercises of notebook 08: six broken recipes, one for each point of the checklist.

Each trial lets the repaired function work on a small case and tells what came of it, fact by
fact. Facts that need all ranks are gathered here, not by the answer.
"""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from ..exercise import Exercise, Goal, Here, Mistake
from ..mistakes import When, failed, stuck

#: What came of a trial, by name.
Facts = dict[str, Any]


def _has(**facts: Any) -> When:
    """Return the predicate of a mistake that shows in these facts on some rank."""

    def when(yours: Sequence[Any], expected: Any, n: int) -> bool:
        wanted = {name.replace("_", " "): value for name, value in facts.items()}
        return any(isinstance(y, dict) and wanted.items() <= y.items() for y in yours)

    return when


def _same_everywhere(vector: torch.Tensor) -> bool:
    """Tell on every rank whether all ranks hold the same bits."""
    everyone = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, vector)
    return all(other.equal(vector) for other in everyone)


# -- 08-1: the group is formed, and left ------------------------------------------------------

TRAINED = "trained"


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Be in no group, with gloo on the loopback interface; afterwards all is as before."""
    name, variable = ("lo", "GLOO_SOCKET_IFNAME")
    before = os.environ.get(variable)
    if any(name == found for _, found in socket.if_nameindex()):
        os.environ[variable] = name
    _leave()
    try:
        yield
    finally:
        _leave()
        if before is None:
            os.environ.pop(variable, None)
        else:
            os.environ[variable] = before


def _leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _work() -> str:
    """Do what only works in a group."""
    dist.all_reduce(torch.ones(1))
    return TRAINED


def _fail() -> None:
    raise ZeroDivisionError("a job that fails")


def trial_group(answer: Callable[[Callable[[], Any]], Any], here: Here) -> Facts:
    """Run a job, one that fails, and one inside a group that is there already."""

    def attempt(job: Callable[[], Any]) -> str:
        try:
            said = str(answer(job))
        except Exception as error:
            said = f"raises {type(error).__name__}"
        return f"{said}, {'a group is left' if dist.is_initialized() else 'no group is left'}"

    facts = {}
    with _alone():
        facts["a job"] = attempt(_work)
        _leave()
        facts["a job that fails"] = attempt(_fail)
        _leave()
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        facts["inside a group"] = attempt(_work)
    return facts


def expected_group() -> Facts:
    """Leave a group exactly where there was one before."""
    return {
        "a job": f"{TRAINED}, no group is left",
        "a job that fails": "raises ZeroDivisionError, no group is left",
        "inside a group": f"{TRAINED}, a group is left",
    }


def _said(fact: str, text: str) -> When:
    """Return the predicate of a mistake of 08-1: a fact that begins or ends with a text."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return bool(yours[fact].startswith(text) or yours[fact].endswith(text))

    return when


GROUP = Exercise(
    id="08-1",
    title="Form the group, and leave it",
    answer="run",
    trial=trial_group,
    expected=expected_group,
    where="notebook",
    mistakes=(
        Mistake(
            "The job's result is lost: return what job() returns.",
            when=lambda yours, expected, n: (
                _said("a job", "None")(yours, expected, n)
                and _said("inside a group", "None")(yours, expected, n)
            ),
        ),
        Mistake(
            "No group is formed: the job's collective has nobody to meet.",
            when=_said("a job", "raises ValueError"),
        ),
        Mistake(
            "The group is still there when the job is done.",
            when=_said("a job", "a group is left"),
        ),
        Mistake(
            "A job that fails leaves its group behind, and the next call cannot form one. What "
            "has to happen in any case stands in finally.",
            when=_said("a job that fails", "a group is left"),
        ),
        Mistake(
            "The job's error is swallowed: who called run takes a failed job for a finished one.",
            when=lambda yours, expected, n: not yours["a job that fails"].startswith("raises"),
        ),
        Mistake(
            "Inside a group it forms a second one, which is refused. Ask dist.is_initialized() "
            "first.",
            when=_said("inside a group", "raises ValueError"),
        ),
        Mistake(
            "It destroys a group that it has not formed. That one is for its owner to leave.",
            when=_said("inside a group", "no group is left"),
        ),
    ),
    hints=(
        "Three cases: a group is there already; the job works; the job fails.",
        "if dist.is_initialized(): return job(). Otherwise form the group, then try, then finally.",
        "try: return job() and finally: dist.destroy_process_group(), after init_process_group.",
    ),
)


# -- 08-2: the model is converted and wrapped, under autocast ---------------------------------


class _Probe(nn.Module):
    """Note whether autocast is on when forward and backward pass here."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, bool] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kind = x.device.type
        self.seen["forward"] = torch.is_autocast_enabled(kind)
        if x.requires_grad:
            x.register_hook(
                lambda _: self.seen.__setitem__("backward", torch.is_autocast_enabled(kind))
            )
        return x


def trial_wrap(answer: Callable[..., Any], here: Here) -> Facts | None:
    """Train two steps, on other images on each rank; return what holds afterwards."""
    torch.manual_seed(here.rank)
    probe = _Probe()
    layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), probe, nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(8 * 6 * 6, 10)).to(here.device)
    batches = [
        (
            torch.rand(4, 1, 8, 8, device=here.device),
            torch.arange(4, device=here.device) + here.rank % 4,
        )
        for _ in range(2)
    ]
    net = answer(model, batches)
    if net is None:
        return None
    if not isinstance(net, nn.Module):
        raise TypeError(f"It returns {type(net).__name__}, not the trained model.")
    norms = [layer for layer in net.modules() if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)]
    trained = any(bool((layer.weight != 1).any()) for layer in norms)
    return {
        "equal on every rank": _same_everywhere(
            nn.utils.parameters_to_vector(net.parameters()).detach()
        ),
        "norm layer": " and ".join(type(layer).__name__ for layer in norms),
        "norm layer trained": trained,
        "autocast in forward": probe.seen.get("forward", False),
        "autocast in backward": probe.seen.get("backward", False),
    }


def expected_wrap(world_size: int) -> list[Facts]:
    """Say what holds when all is in order."""
    facts = {
        "equal on every rank": True,
        "norm layer": "GroupNorm",
        "norm layer trained": True,
        "autocast in forward": True,
        "autocast in backward": False,
    }
    return [facts] * world_size


WRAP = Exercise(
    id="08-2",
    title="Convert, wrap, cast",
    answer="train_mixed",
    trial=trial_wrap,
    expected=expected_wrap,
    mistakes=(
        Mistake(
            "DDP waits for gradients of layers that are no longer there: the model was converted "
            "after it had been wrapped. Wrap last.",
            when=lambda yours, expected, n: failed(yours, "RuntimeError"),
        ),
        Mistake(
            "The model is not converted: BatchNorm takes its statistics from one rank's share.",
            when=_has(norm_layer="BatchNorm2d"),
        ),
        Mistake(
            "The optimizer holds the parameters of the layers that were replaced: make it after "
            "the conversion.",
            when=_has(norm_layer_trained=False, norm_layer="GroupNorm"),
        ),
        Mistake(
            "Each rank has trained a model of its own: call the wrapped model, not the one in it.",
            when=_has(equal_on_every_rank=False),
        ),
        Mistake(
            "The forward pass runs in float32: compute the scores inside torch.autocast.",
            when=_has(autocast_in_forward=False),
        ),
        Mistake(
            "backward() stands inside the autocast block. It takes each operation's type from "
            "the forward pass: end the block before it.",
            when=_has(autocast_in_backward=True),
        ),
    ),
    hints=(
        "What changes the parameters comes before DDP; what uses them, after it.",
        "to_group_norm(model), then DDP(model), then the optimizer from its parameters.",
        "In the loop: zero_grad; with torch.autocast(device.type, dtype=torch.bfloat16): loss = "
        "…; and outside of the block loss.backward() and step().",
    ),
)


# -- 08-3: the data is split and dealt --------------------------------------------------------

#: Items for each rank; a quarter is for testing.
DEALT, TESTED = 18, 6


def trial_deal(answer: Callable[..., Any], here: Here) -> Facts | None:
    """Deal 24 numbers a rank for two epochs; return what holds for all ranks' shares together."""
    torch.manual_seed(here.rank)  # as in a recipe: random numbers differ between ranks
    given = answer(list(range((DEALT + TESTED) * here.world_size)), 2)
    if given is None:
        return None
    dealt, tested = given
    mine = ([[int(i) for i in epoch] for epoch in dealt], [int(i) for i in tested])
    everyone: list[Any] = [None] * here.world_size
    dist.all_gather_object(everyone, mine)
    epochs = [sorted(i for share, _ in everyone for i in share[e]) for e in range(2)]
    tests = sorted(i for _, test in everyone for i in test)
    return {
        "trained on in an epoch": len(epochs[0]),
        "of them different": len(set(epochs[0])),
        "epochs in the same order": mine[0][0] == mine[0][1],
        "tested": len(tests),
        "of these different": len(set(tests)),
        "trained on and tested": len(set(tests) & set(epochs[0] + epochs[1])),
    }


def expected_deal(world_size: int) -> list[Facts]:
    """Count what one process has that trains on three quarters and tests the rest."""
    facts = {
        "trained on in an epoch": DEALT * world_size,
        "of them different": DEALT * world_size,
        "epochs in the same order": False,
        "tested": TESTED * world_size,
        "of these different": TESTED * world_size,
        "trained on and tested": 0,
    }
    return [facts] * world_size


def _fact(name: str, test: Callable[[Any, int], bool]) -> When:
    """Return the predicate of a mistake: ``test(value, world_size)`` of a fact of rank 0."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return bool(test(yours[0][name], n))

    return when


DEAL = Exercise(
    id="08-3",
    title="Split and deal",
    answer="deal",
    trial=trial_deal,
    expected=expected_deal,
    mistakes=(
        Mistake(
            "A DataLoader takes a sampler or shuffle=True, not both: the sampler shuffles.",
            when=lambda yours, expected, n: failed(yours, "ValueError"),
        ),
        Mistake(
            "Some numbers are trained on by one rank and tested by another: each rank splits with "
            "its own random numbers. Give random_split a generator with one seed for all.",
            when=_fact("trained on and tested", lambda count, n: count > 0),
        ),
        Mistake(
            "Every rank trains on the whole training set: its loader needs a DistributedSampler.",
            when=_fact("trained on in an epoch", lambda count, n: count == DEALT * n * n),
        ),
        Mistake(
            "Every rank tests the whole test set: its loader needs a DistributedSampler too.",
            when=_fact("tested", lambda count, n: count == TESTED * n * n),
        ),
        Mistake(
            "The second epoch is the first one again: call set_epoch(epoch) of the training "
            "sampler before each.",
            when=_fact("epochs in the same order", lambda same, n: same),
        ),
    ),
    hints=(
        "Three things: one split for all ranks, a sampler for each of the two sets, and a new "
        "order in each epoch.",
        "generator=torch.Generator().manual_seed(0) goes into random_split; "
        "DistributedSampler(train_set) and DistributedSampler(test_set, shuffle=False) go into "
        "the loaders.",
        "In the loop over epochs: sampler.set_epoch(epoch), then dealt.append(items(loader)).",
    ),
)


# -- 08-4: the loss is scaled -----------------------------------------------------------------

#: Where GradScaler begins by default.
SCALE = 65536.0
RATE = 1e6
LABEL = 1e-8


def _net() -> nn.Linear:
    net = nn.Linear(8, 1, bias=False)
    nn.init.zeros_(net.weight)
    return net


def _images(rank: int) -> torch.Tensor:
    return torch.full((4, 8), rank + 1.0)


def _labels() -> torch.Tensor:
    return torch.full((4, 1), LABEL)


def trial_scale(answer: Callable[..., Any], here: Here) -> Facts:
    """Take a step with tiny gradients, and one that overflows on the last rank."""
    net = nn.parallel.DistributedDataParallel(_net().to(here.device))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    scaler = torch.amp.GradScaler(here.device.type, init_scale=SCALE)
    types: list[str] = []
    net.register_forward_hook(lambda module, x, out: types.append(str(out.dtype)))
    images, labels = _images(here.rank).to(here.device), _labels().to(here.device)
    answer(net, optimizer, scaler, images, labels)
    weight = net.module.weight.detach()
    moved, before = weight.mean().item() / _moved(here.world_size), weight.clone()
    answer(
        net, optimizer, scaler, images * (1e9 if here.rank == here.world_size - 1 else 1), labels
    )
    return {
        "forward in": types[0] if types else "nothing",
        "moved, in steps of float32": round(moved, 2),
        "moved by an overflow": not net.module.weight.equal(before),
        "scale after it": scaler.get_scale(),
    }


def _moved(world_size: int) -> float:
    """Return how far one process moves the weights in float32."""
    net = _net()
    images = torch.cat([_images(rank) for rank in range(world_size)])
    F.mse_loss(net(images), _labels().repeat(world_size, 1)).backward()
    assert net.weight.grad is not None
    return -RATE * net.weight.grad.mean().item()


def expected_scale(world_size: int) -> list[Facts]:
    """Move as in float32; skip what overflows, and halve the scale."""
    facts = {
        "forward in": "torch.float16",
        "moved, in steps of float32": 1.0,
        "moved by an overflow": False,
        "scale after it": SCALE / 2,
    }
    return [facts] * world_size


MOVED = "moved, in steps of float32"

SCALED = Exercise(
    id="08-4",
    title="Scale the loss",
    answer="scaled_step",
    trial=trial_scale,
    expected=expected_scale,
    mistakes=(
        Mistake(
            "scaler.step() was called twice without scaler.update() between: each step ends with "
            "an update.",
            when=lambda yours, expected, n: failed(yours, "RuntimeError"),
        ),
        Mistake(
            "Nothing was computed: the net was not called.",
            when=_fact("forward in", lambda kind, n: kind == "nothing"),
        ),
        Mistake(
            "The forward pass is not in float16: it belongs inside torch.autocast.",
            when=_fact("forward in", lambda kind, n: kind == "torch.float32"),
        ),
        Mistake(
            "The weights have not moved: the gradients are too small for float16. Call backward "
            "on scaler.scale(loss).",
            when=_fact(MOVED, lambda moved, n: moved == 0),
        ),
        Mistake(
            "The step is as many times too long as the scale is large: optimizer.step() does not "
            "know of it. scaler.step(optimizer) divides first.",
            when=_fact(MOVED, lambda moved, n: moved > 1000),
        ),
        Mistake(
            "A step was taken with gradients that are not finite. scaler.step(optimizer) leaves "
            "such a step out.",
            when=_fact("moved by an overflow", lambda moved, n: moved),
        ),
        Mistake(
            "After an overflow the scale has to fall: end each step with scaler.update().",
            when=_fact("scale after it", lambda scale, n: scale == SCALE),
        ),
    ),
    hints=(
        "Three calls of the scaler: one for the loss, one for the step, one at the end.",
        "scaler.scale(loss).backward() makes the gradients large enough for float16.",
        "Then scaler.step(optimizer), which divides them again, and scaler.update().",
    ),
)


# -- 08-5: one rank prints and saves ----------------------------------------------------------

EPOCH = 3
#: What writing the file takes, so that a rank that does not wait comes too early.
SAVING = 0.3


def trial_report(answer: Callable[..., Any], here: Here) -> Facts:
    """Report one epoch; return what was printed and written here, and what is there after."""
    rank = here.rank
    folders: list[Any] = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folders, src=0)
    path = Path(folders[0]) / "model.pt"
    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 1).to(here.device))
    stock, saved, printed = torch.save, [0], io.StringIO()

    def save(*args: Any, **named: Any) -> None:
        saved[0] += 1
        time.sleep(SAVING)
        stock(*args, **named)

    with patch.object(torch, "save", save), contextlib.redirect_stdout(printed):
        mean = answer(EPOCH, rank + 1.0, net, path)
    there = path.is_file()
    dist.barrier()
    names = sorted(torch.load(path, weights_only=True)) if path.is_file() else []
    dist.barrier()
    if rank == 0:
        shutil.rmtree(path.parent)
    return {
        "returned": mean,
        "printed": printed.getvalue().strip(),
        "files written": saved[0],
        "file is there": there,
        "names in it": ", ".join(names),
    }


def expected_report(world_size: int) -> list[Facts]:
    """Print and write on rank 0; return the mean everywhere."""
    mean = sum(range(1, world_size + 1)) / world_size
    return [
        {
            "returned": mean,
            "printed": "" if rank else f"epoch {EPOCH}: loss {mean:.3f}",
            "files written": 0 if rank else 1,
            "file is there": True,
            "names in it": "bias, weight",
        }
        for rank in range(world_size)
    ]


def _elsewhere(name: str) -> When:
    """Return the predicate of a mistake: ranks other than 0 have this fact too."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return any(y[name] for y in yours[1:])

    return when


REPORT = Exercise(
    id="08-5",
    title="Speak and save once",
    answer="report",
    trial=trial_report,
    expected=expected_report,
    mistakes=(
        Mistake(
            "Rank 0 alone is in a collective, and the others do not come. Only printing and "
            "saving belong under the if; all_reduce and barrier are for every rank.",
            when=stuck,
        ),
        Mistake(
            "Nobody has written the file.",
            when=lambda yours, expected, n: not any(y["files written"] for y in yours),
        ),
        Mistake(
            "Every rank prints: that is for rank 0.",
            when=_elsewhere("printed"),
        ),
        Mistake(
            "Every rank writes the same file, all at once: that is for rank 0.",
            when=_elsewhere("files written"),
        ),
        Mistake(
            "That is the loss of one rank's own images: add up over the ranks, on every rank, and "
            "divide by world_size.",
            when=lambda yours, expected, n: (
                [y["returned"] for y in yours] == [r + 1.0 for r in range(n)]
            ),
        ),
        Mistake(
            "That is the sum over the ranks: divide it by world_size.",
            when=_fact("returned", lambda mean, n: mean == n * (n + 1) / 2),
        ),
        Mistake(
            "The names in the file begin with module., which is DDP's: save net.module, so that "
            "a bare model can load it.",
            when=_fact("names in it", lambda names, n: "module." in names),
        ),
        Mistake(
            "Some ranks went on before the file was there: let everybody meet in a barrier after "
            "the save.",
            when=_has(file_is_there=False),
        ),
    ),
    hints=(
        "First what needs everybody, then what one rank does, then wait for it.",
        "A tensor of the loss, all_reduce, divided by world_size; under if rank == 0: print and "
        "torch.save; after it, on every rank, dist.barrier().",
        'print(f"epoch {epoch}: loss {mean:.3f}") and torch.save(net.module.state_dict(), path).',
    ),
)


# -- 08-6: the test results are reduced -------------------------------------------------------

#: What a net answers, and what is right: thirteen images, of which eight are recognised.
GUESSES = (7, 2, 1, 0, 4, 1, 4, 9, 5, 9, 0, 6, 9)
LABELS = (7, 2, 1, 3, 4, 1, 8, 9, 6, 9, 2, 6, 0)


class _Reads(nn.Module):
    """Take the number in an image for its digit."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.one_hot(images.flatten().long(), 10).float()


def trial_test(answer: Callable[..., Any], here: Here) -> list[Any] | None:
    """Test on 13 images; return accuracy and number of images."""
    test_set = [
        (torch.tensor([float(guess)]), label) for guess, label in zip(GUESSES, LABELS, strict=True)
    ]
    given = answer(_Reads(), test_set)
    return None if given is None else list(given)


def _right(share: Sequence[int]) -> int:
    return sum(GUESSES[i] == LABELS[i] for i in share)


def expected_test(world_size: int) -> list[list[float]]:
    """Count in one process."""
    images = range(len(LABELS))
    return [[_right(images) / len(images), len(images)]] * world_size


def _padded(rank: int, n: int) -> list[int]:
    """Return the share that DistributedSampler deals: it goes round until all have as many."""
    each = -(-len(LABELS) // n)
    return [(rank + n * k) % len(LABELS) for k in range(each)]


def _close(yours: Any, wanted: Sequence[Sequence[float]]) -> bool:
    return all(
        abs(float(a) - float(b)) < 1e-5
        for y, w in zip(yours, wanted, strict=True)
        for a, b in zip(y, w, strict=True)
    )


def _own_share(yours: Any, expected: Any, n: int) -> bool:
    counts = {int(y[1]) for y in yours}
    return max(counts) <= -(-len(LABELS) // n) < len(LABELS)


TEST = Exercise(
    id="08-6",
    title="Test together",
    answer="test",
    trial=trial_test,
    expected=expected_test,
    goals=(Goal("collectives", most=lambda n: 1),),
    mistakes=(
        Mistake(
            "Rank 0 alone is in a collective, and the others do not come.",
            when=stuck,
        ),
        Mistake(
            "Each rank has the result of its own share: add up the counts over the ranks.",
            when=_own_share,
        ),
        Mistake(
            "Some images are counted twice: DistributedSampler repeats a few, so that all ranks "
            "have as many. Take every world_size-th image instead.",
            when=lambda yours, expected, n: (
                int(yours[0][1]) == len(_padded(0, n)) * n > len(LABELS)
            ),
        ),
        Mistake(
            "Every rank has tested every image, and the counts were added: deal the images out.",
            when=lambda yours, expected, n: int(yours[0][1]) == n * len(LABELS) and n > 1,
        ),
        Mistake(
            "That is the mean of the ranks' accuracies. Their shares differ in length: add up "
            "counts, then divide once.",
            when=lambda yours, expected, n: (
                int(yours[0][1]) == len(LABELS) and not _close(yours, expected)
            ),
        ),
        Mistake(
            "The result is right, with more collectives than it needs: put both counts into one "
            "tensor.",
            missed="collectives",
        ),
    ),
    hints=(
        "Who tests what, so that every image is tested once? And what can be added up?",
        "Subset(test_set, range(rank, len(test_set), world_size)) is this rank's share. Count the "
        "correct answers and the images in it.",
        "One tensor of both counts, one dist.all_reduce, then return correct / images and the "
        "number of images, as numbers (.tolist()).",
    ),
)

EXERCISES = (GROUP, WRAP, DEAL, SCALED, REPORT, TEST)
