"""What cannot leave a rank, and what is said of it."""

from __future__ import annotations

import pickle
import threading
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from labkit.rank import pickling


def why(value: object, name: str = "x") -> str:
    with pytest.raises(TypeError) as caught:
        pickling.dump(value)
    return pickling.explain(caught.value, value, name)


def test_what_can_be_pickled_is() -> None:
    value = {"a": torch.ones(2), "f": lambda: 3, "n": SimpleNamespace(x=1)}
    back = pickle.loads(pickling.dump(value))
    assert back["a"].tolist() == [1, 1]
    assert back["f"]() == 3
    assert back["n"].x == 1


def test_each_kind_has_its_own_way_out() -> None:
    assert why(i for i in range(3)) == (
        "x cannot leave its ranks: it is a generator. Take what you need of it: "
        "%px items = list(x), then lab['items']."
    )
    assert why(dist.HashStore(), "store") == (
        "store cannot leave its ranks: it is a store, which is a connection of its rank. Take what "
        "you need of it: %px value = store.get('key'), then lab['value']."
    )


class DistributedDataParallel(torch.nn.Module):
    """Stand for torch's."""


DistributedDataParallel.__module__ = "torch.nn.parallel.distributed"


def test_classes_made_of_them_stay_too() -> None:
    class Own(DistributedDataParallel):
        pass

    assert why(Own(), "model") == (
        "model cannot leave its ranks: it is a DDP model, whose process group is there. Take what "
        "you need of it: %px sd = model.module.state_dict(), then lab['sd']."
    )
    assert why({"model": Own()}) == (
        "x cannot leave its ranks: in it is a DDP model, whose process group is there. Take what "
        "you need of it: %px part = …, then lab['part']."
    )


def test_the_rest_is_told_in_pythons_words() -> None:
    assert why([threading.Lock()]) == (
        "x cannot leave its ranks (cannot pickle '_thread.lock' object). Take what you need of it: "
        "%px part = …, then lab['part']."
    )
    assert why(threading.Lock(), "") == (
        "The result cannot leave its ranks (cannot pickle '_thread.lock' object). Take what you "
        "need of it: return that."
    )
    with pytest.raises(TypeError, match=r"^cannot pickle 'generator' object$"):
        pickling.dump(i for i in "a")
