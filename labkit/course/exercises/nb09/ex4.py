"""A script of one's own: one process turned into several that train the same."""

from __future__ import annotations

from ...exercise import Exercise
from . import own_script
from .alone import SINGLE
from .own_script_mistakes import MISTAKES

EXERCISE = Exercise(
    id="09-4",
    title="Your own DDP script",
    answer="my_ddp.py",
    where="file",
    start=SINGLE,
    trial=own_script.trial,
    expected=own_script.expected,
    seconds=300.0,
    mistakes=MISTAKES,
    hints=(
        "Five places change: the group and the device at the beginning, the sampler and its share "
        "of the batch, the model that is called in the loop, which rank writes and prints, and "
        "the end. The rest of single.py stays as it is, loading a checkpoint included.",
        "Load the checkpoint into the model on every rank before DDP(model) wraps it, and save "
        "model.state_dict(): then the names are those of single.py. The optimizer gets the "
        "parameters of the model, and the loop calls the wrapped model.",
        "Under `if dist.get_rank() == 0:` there are only print, torch.save and os.replace, no call "
        "that other ranks have to make too. Call sampler.set_epoch(epoch) before each epoch. The "
        "loader of a rank takes BATCH_SIZE // dist.get_world_size() rows per step.",
    ),
)
