WRONG = {
    "no set_epoch": (
        """
def rest_of_epoch(sampler, epoch, done, batch):
    return list(sampler)[done * batch :]
""",
        "That is the order of epoch 0",
    ),
    "batches as images": (
        """
def rest_of_epoch(sampler, epoch, done, batch):
    sampler.set_epoch(epoch)
    return list(sampler)[done:]
""",
        "done counts batches",
    ),
    "all ranks' images": (
        """
def rest_of_epoch(sampler, epoch, done, batch):
    sampler.set_epoch(epoch)
    return list(sampler)[done * batch * world_size :]
""",
        "You leave out the images of all ranks",
    ),
    "the whole epoch": (
        """
def rest_of_epoch(sampler, epoch, done, batch):
    sampler.set_epoch(epoch)
    return list(sampler)
""",
        "That is the whole epoch",
    ),
    "what was seen": (
        """
def rest_of_epoch(sampler, epoch, done, batch):
    sampler.set_epoch(epoch)
    return list(sampler)[: done * batch]
""",
        "Those are the images that were seen",
    ),
    "a slice of the sampler": (
        """
def rest_of_epoch(sampler, epoch, done, batch):
    sampler.set_epoch(epoch)
    return sampler[done * batch :]
""",
        "A DistributedSampler is no list",
    ),
}

ANOTHER = """
from itertools import islice


def rest_of_epoch(sampler, epoch, done, batch):
    sampler.set_epoch(epoch)
    return [index for index in islice(sampler, done * batch, None)]
"""
