"""The exercises of notebook 05: DataParallel taken apart, in one process and without a GPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from ..exercise import Exercise, Here, Mistake
from ..mistakes import When, would_give

# -- 05-1: who gets how many rows -------------------------------------------------------------

#: (rows, devices): the toy's two batches on 2 and on 8 devices, and one that is told by none.
BATCHES = ((30, 2), (10, 2), (30, 8), (10, 8), (7, 4))


def split_trial(answer: Callable[[int, int], Any], here: Here) -> list[Any]:
    return [answer(rows, devices) for rows, devices in BATCHES]


def split_expected() -> list[list[int]]:
    """Let torch cut a tensor of that many rows."""
    return [[len(piece) for piece in torch.empty(rows).chunk(k)] for rows, k in BATCHES]


def _splits(play: Callable[[int, int], list[int]]) -> When:
    """Return the predicate of a mistake that gives ``play(rows, devices)``."""

    return would_give(lambda n: [play(*batch) for batch in BATCHES])


def _rounded_down(rows: int, devices: int) -> list[int]:
    size = rows // devices
    return [size] * (devices - 1) + [rows - size * (devices - 1)]


def _even(rows: int, devices: int) -> list[int]:
    return [len(piece) for piece in torch.empty(rows).tensor_split(devices)]


def _with_idle(rows: int, devices: int) -> list[int]:
    used = [len(piece) for piece in torch.empty(rows).chunk(devices)]
    return used + [0] * (devices - len(used))


SPLIT = Exercise(
    id="05-1",
    title="Who gets how many?",
    answer="rows_per_device",
    trial=split_trial,
    expected=split_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "You round down and give the rest to the last device. DP rounds up, so the last one "
            "gets less than the others, not more.",
            when=_splits(_rounded_down),
        ),
        Mistake(
            "You deal evenly, as tensor_split does. DP cuts with chunk: full pieces first, and "
            "what is left to the last.",
            when=_splits(_even),
        ),
        Mistake(
            "A device without rows is not in the list: DP does not call it at all.",
            when=_splits(_with_idle),
        ),
        Mistake(
            "There are more pieces than devices: the size of a piece is rows / devices, rounded "
            "up.",
            when=lambda yours, expected, n: any(
                len(split) > k for split, (_, k) in zip(yours, BATCHES, strict=True)
            ),
        ),
        Mistake(
            "The numbers do not add up to the rows of the batch: the last piece is what is left.",
            when=lambda yours, expected, n: any(
                sum(split) != rows for split, (rows, _) in zip(yours, BATCHES, strict=True)
            ),
        ),
    ),
    hints=(
        "How large is the first piece? All others but the last are as large.",
        "A piece has -(-rows // devices) rows. Pieces begin at row 0, size, 2 * size, … as long "
        "as there are rows.",
        "[min(size, rows - start) for start in range(0, rows, size)]",
    ),
)


# -- 05-2: threads with the caller's switch ---------------------------------------------------

REPLICAS = 3
#: Seconds that replicas wait for each other: for ever if they run one after another.
PATIENCE = 1.0


def _on_threads(answer: Callable[..., Any]) -> tuple[Any, bool, list[bool]]:
    """Return the outputs, whether all replicas ran at the same time, and if they kept a graph."""
    gate = threading.Barrier(REPLICAS, timeout=PATIENCE)
    met, graphs = [], []

    def replica(number: int, piece: torch.Tensor) -> torch.Tensor:
        try:
            gate.wait()
            met.append(True)
        except threading.BrokenBarrierError:
            met.append(False)
        time.sleep(0.03 * (REPLICAS - number))  # the first one is done last
        graphs.append(torch.is_grad_enabled())
        return 10 * piece

    replicas = [lambda piece, i=i: replica(i, piece) for i in range(REPLICAS)]
    outputs = answer(replicas, [torch.tensor([i + 1]) for i in range(REPLICAS)])
    return outputs, len(met) == REPLICAS and all(met), graphs


def threads_trial(answer: Callable[..., Any], here: Here) -> dict[str, Any] | None:
    outputs, together, graphs = _on_threads(answer)
    if outputs is None:
        return None
    with torch.no_grad():
        _, _, graphs_of_none = _on_threads(answer)
    values = [o.item() if isinstance(o, torch.Tensor) else type(o).__name__ for o in outputs]
    return {
        "outputs": values,
        "together": together,
        "graph": all(graphs),
        "no_grad": any(graphs_of_none),
    }


def threads_expected() -> dict[str, Any]:
    return {
        "outputs": [10 * (i + 1) for i in range(REPLICAS)],
        "together": True,
        "graph": True,
        "no_grad": False,
    }


THREADS = Exercise(
    id="05-2",
    title="Carry the switch over",
    answer="apply_on_threads",
    trial=threads_trial,
    expected=threads_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "It returns futures, which are promises of an output: ask each for its result().",
            when=lambda yours, expected, n: "Future" in yours["outputs"],
        ),
        Mistake(
            "The replicas do not all run at the same time: start all threads before you wait for "
            "the first, and have as many as there are replicas.",
            when=lambda yours, expected, n: not yours["together"],
        ),
        Mistake(
            "The outputs are in the order in which the threads were done. gather needs them in "
            "the order of the replicas, or rows change places.",
            when=lambda yours, expected, n: (
                yours["outputs"] != expected["outputs"]
                and sorted(yours["outputs"]) == expected["outputs"]
            ),
        ),
        Mistake(
            "Under no_grad the replicas keep a graph all the same. Read the caller's setting in "
            "the caller's thread, before the others begin, and set it inside of them.",
            when=lambda yours, expected, n: yours["no_grad"],
        ),
        Mistake(
            "In training no graph is kept, so there is no gradient. Set what the caller has, not "
            "always the same.",
            when=lambda yours, expected, n: not yours["graph"],
        ),
    ),
    hints=(
        "torch.is_grad_enabled() answers for the thread that asks. Who has to ask?",
        "Ask first, into a variable. Give the threads a function that sets it and then calls the "
        "replica.",
        "enabled = torch.is_grad_enabled(); in the function: with torch.set_grad_enabled(enabled): "
        "return replica(piece); and pool.map(function, replicas, pieces).",
    ),
)


# -- 05-3: a counter that survives ------------------------------------------------------------

STEPS = 4
#: (devices, rows of a batch); in both cases device 0 gets three rows.
LAYOUTS = ((2, 6), (3, 7))
MINE = 3


def _replicas(model: nn.Module, count: int) -> list[nn.Module]:
    """Copy a model as torch.nn.parallel.replicate does, for any device.

    Ordinary attributes are shared by all replicas; parameters and buffers are the model's own in
    the first one and copies in the others.
    """
    replicas = []
    for i in range(count):
        twins = {module: module._replicate_for_data_parallel() for module in model.modules()}
        for module, twin in twins.items():
            for name, child in module.named_children():
                setattr(twin, name, twins[child])
            for name, tensor in {**module._parameters, **module._buffers}.items():
                if tensor is not None:
                    setattr(twin, name, tensor if i == 0 else tensor.detach().clone())
        replicas.append(twins[model])
    return replicas


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def counter_trial(answer: Callable[[], nn.Module], here: Here) -> dict[str, Any]:
    found: dict[str, Any] = {}
    unchanged = True
    for devices, rows in LAYOUTS:
        model = answer()
        for _ in range(STEPS):
            x = torch.randn(rows, 2)
            pieces = x.chunk(devices)
            for replica, piece in zip(_replicas(model, devices), pieces, strict=True):
                output = replica(piece.clone())
                unchanged &= isinstance(output, torch.Tensor) and output.equal(piece)
        found[f"{devices} devices"] = _number(getattr(model, "steps", None))
    return {
        **found,
        "x unchanged": unchanged,
        "a buffer": "steps" in dict(model.named_buffers()),
    }


def counter_expected() -> dict[str, Any]:
    counted = {f"{devices} devices": STEPS for devices, _ in LAYOUTS}
    return {**counted, "x unchanged": True, "a buffer": True}


def _counts(number: Callable[[int], int]) -> When:
    """Return the predicate of a mistake that counts ``number(devices)``."""

    def when(yours: Any, expected: Any, n: int) -> bool:
        return all(yours[f"{k} devices"] == number(k) for k, _ in LAYOUTS)

    return when


COUNTER = Exercise(
    id="05-3",
    title="A counter that survives",
    answer="StepCounter",
    trial=counter_trial,
    expected=counter_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "forward has to return x as it is.",
            when=lambda yours, expected, n: not yours["x unchanged"],
        ),
        Mistake(
            "Every device has counted: what is no buffer and no parameter is not copied, so all "
            "replicas write into the same tensor. Make it a buffer, with register_buffer.",
            when=_counts(lambda devices: STEPS * devices),
        ),
        Mistake(
            "steps is an ordinary attribute. A replica's goes when the replica does: make it a "
            "buffer, with register_buffer.",
            when=lambda yours, expected, n: not yours["a buffer"],
        ),
        Mistake(
            "Nothing is left of the count. self.steps = self.steps + 1 gives a new tensor to the "
            "replica; change the buffer itself, with +=.",
            when=_counts(lambda devices: 0),
        ),
        Mistake(
            "You count rows, and only device 0's are left of them. A step counts as one.",
            when=_counts(lambda devices: STEPS * MINE),
        ),
    ),
    hints=(
        "What survives? Look at how the counter of rows was repaired.",
        "In __init__, after super().__init__(), register_buffer makes a buffer of a name and a "
        "tensor; in forward change it in place.",
        'self.register_buffer("steps", torch.tensor(0)), and self.steps += 1 before return x.',
    ),
)


# -- 05-4: device 0's bill --------------------------------------------------------------------

DEVICES = (2, 4, 8)
PARAMETERS, INPUTS, OUTPUTS = 1000, 240, 80


def bill_trial(answer: Callable[[int, int, int, int], Any], here: Here) -> list[Any]:
    return [answer(k, PARAMETERS, INPUTS, OUTPUTS) for k in DEVICES]


def _sent(k: int) -> float:
    return (k - 1) * (PARAMETERS + (INPUTS + OUTPUTS) / k)


def _received(k: int) -> float:
    return (k - 1) * (PARAMETERS + OUTPUTS / k)


def bill_expected() -> list[tuple[float, float]]:
    return [(_sent(k), _received(k)) for k in DEVICES]


def _bill(
    place: int | None, wrong: Callable[[int], Any]
) -> Callable[[Sequence[Any], Any, int], bool]:
    """Return the predicate of a mistake: one place of the pair, or all of it, is ``wrong(k)``."""

    def when(yours: Sequence[Any], expected: Any, n: int) -> bool:
        for bill, k in zip(yours, DEVICES, strict=True):
            mine = tuple(bill) if place is None else (bill[place],)
            theirs = wrong(k) if place is None else (wrong(k),)
            if any(abs(m - t) > 1e-6 for m, t in zip(mine, theirs, strict=True)):
                return False
        return True

    return when


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


BILL = Exercise(
    id="05-4",
    title="Device 0's bill",
    answer="device0_traffic",
    trial=bill_trial,
    expected=bill_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "It returns one number. The bill has two, as a pair: what is sent, and what is "
            "received.",
            when=lambda yours, expected, n: all(map(_is_number, yours)),
        ),
        Mistake(
            "Sent and received have changed places.",
            when=_bill(None, lambda k: (_received(k), _sent(k))),
        ),
        Mistake(
            "Device 0 sends nothing to itself: there are devices - 1 others.",
            when=_bill(None, lambda k: (_sent(k) * k / (k - 1), _received(k) * k / (k - 1))),
        ),
        Mistake(
            "Each device gets its own piece of the batch, not all of it: divide inputs and "
            "outputs by devices.",
            when=_bill(0, lambda k: (k - 1) * (PARAMETERS + INPUTS + OUTPUTS)),
        ),
        Mistake(
            "You forget that the outputs' gradient goes back to where the outputs were made: "
            "device 0 sends that too.",
            when=_bill(0, lambda k: (k - 1) * (PARAMETERS + INPUTS / k)),
        ),
        Mistake(
            "You send the parameters to one device only. Each of the others needs a copy.",
            when=_bill(0, lambda k: PARAMETERS + (k - 1) * (INPUTS + OUTPUTS) / k),
        ),
        Mistake(
            "You forget that every replica sends back the gradient of all its parameters.",
            when=_bill(1, lambda k: (k - 1) * OUTPUTS / k),
        ),
    ),
    hints=(
        "Go through the four parts of the figure, and ask of each whether device 0 sends or "
        "receives it. The outputs come in, and their gradient goes out.",
        "To each of the devices - 1 others: the parameters, a piece of the inputs, a piece of the "
        "outputs' gradient. From each: a piece of the outputs, the gradient of the parameters.",
        "sent = (devices - 1) * (parameters + (inputs + outputs) / devices); received is the same "
        "without the inputs.",
    ),
)


# -- 05-5: one GPU, DP or DDP -----------------------------------------------------------------

#: (fits, fast_enough, machines, one_line), in the order of the notebook's table.
SITUATIONS = (
    (True, True, 1, False),
    (True, False, 1, True),
    (True, False, 1, False),
    (True, False, 8, True),
    (False, False, 1, True),
)
CHOICES = ("one GPU", "DP", "DDP", "DDP", "DDP with model parallel")


def choose_trial(answer: Callable[[bool, bool, int, bool], Any], here: Here) -> list[Any]:
    return [answer(*situation) for situation in SITUATIONS]


def choose_expected() -> list[str]:
    return list(CHOICES)


def _chose(case: int, *choices: str) -> When:
    return lambda yours, expected, n: yours[case - 1] in choices


CHOOSE = Exercise(
    id="05-5",
    title="Decide",
    answer="choose",
    trial=choose_trial,
    expected=choose_expected,
    where="notebook",
    mistakes=(
        Mistake(
            "The first case is fast enough on one GPU: more of them make it more complicated and "
            "no better.",
            when=_chose(1, "DP", "DDP", "DDP with model parallel"),
        ),
        Mistake(
            "The last model does not fit on a GPU, and both DP and plain DDP keep all of it on "
            "each: it has to be spread.",
            when=_chose(5, "one GPU", "DP", "DDP"),
        ),
        Mistake(
            "DP is one process, and a process lives on one machine. With eight of them it is DDP, "
            "whatever the colleague wants.",
            when=_chose(4, "DP"),
        ),
        Mistake(
            "The third case trains every night and may change more than a line: that is where DDP "
            "pays.",
            when=_chose(3, "DP"),
        ),
        Mistake(
            "The second case is DP's own: one machine, and one line to change.",
            when=_chose(2, "DDP"),
        ),
    ),
    hints=(
        "Ask first what rules choices out: does the model fit on one GPU at all?",
        "Then: is one GPU enough? Then: one machine and only one line? What is left is DDP.",
        'not fits: "DDP with model parallel"; fast_enough: "one GPU"; machines == 1 and one_line: '
        '"DP"; else "DDP".',
    ),
)


EXERCISES = (SPLIT, THREADS, COUNTER, BILL, CHOOSE)
