"""Wrong and right answers to exercise 08-1."""

SETUP = """
import torch.distributed as dist
"""

WRONG = {
    "leaves after a success only": (
        """
def run(job):
    if dist.is_initialized():
        return job()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    result = job()
    dist.destroy_process_group()
    return result
""",
        "A job that fails leaves its group behind",
    ),
    "never leaves": (
        """
def run(job):
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return job()
""",
        "The group is still there",
    ),
    "swallows the error": (
        """
def run(job):
    if dist.is_initialized():
        return job()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return job()
    except Exception as error:
        return str(error)
    finally:
        dist.destroy_process_group()
""",
        "The job's error is swallowed",
    ),
    "forms a second group": (
        """
def run(job):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return job()
    finally:
        dist.destroy_process_group()
""",
        "Inside a group it forms a second one",
    ),
    "destroys what is not its own": (
        """
def run(job):
    if not dist.is_initialized():
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return job()
    finally:
        dist.destroy_process_group()
""",
        "It destroys a group that it has not formed",
    ),
    "loses the result": (
        """
def run(job):
    if dist.is_initialized():
        job()
        return
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        job()
    finally:
        dist.destroy_process_group()
""",
        "The job's result is lost",
    ),
    "forms no group": (
        """
def run(job):
    return job()
""",
        "No group is formed",
    ),
    "prints": (
        """
def run(job):
    print("trained, no group is left")
""",
        "The job's result is lost",
    ),
}

ANOTHER = """
from contextlib import ExitStack


def run(job):
    with ExitStack() as leaving:
        if not dist.is_initialized():
            store = dist.HashStore()
            dist.init_process_group("gloo", store=store, rank=0, world_size=1)
            leaving.callback(dist.destroy_process_group)
        return job()
"""
