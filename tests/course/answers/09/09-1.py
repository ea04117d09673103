SETUP = "import math\n"

WRONG = {
    "its own scale": (
        """
def largest_scale(gradient):
    return 2.0 ** math.floor(math.log2(65504 / gradient.abs().max().item()))
""",
        "Each rank looks at its own gradients",
    ),
    "without abs": (
        """
def largest_scale(gradient):
    top = gradient.max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    return 2.0 ** math.floor(math.log2(65504 / top.item()))
""",
        "The largest gradient here is a negative one",
    ),
    "rounds up": (
        """
def largest_scale(gradient):
    top = gradient.abs().max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    return 2.0 ** math.ceil(math.log2(65504 / top.item()))
""",
        "Rounded up, the largest gradient overflows",
    ),
    "no power of two": (
        """
def largest_scale(gradient):
    top = gradient.abs().max()
    dist.all_reduce(top, op=dist.ReduceOp.MAX)
    return 65504 / top.item()
""",
        "That is the largest factor, but not a power of two",
    ),
    "the sum of the largest": (
        """
def largest_scale(gradient):
    top = gradient.abs().max()
    dist.all_reduce(top)
    return 2.0 ** math.floor(math.log2(65504 / top.item()))
""",
        "An all_reduce adds up unless it is told otherwise",
    ),
}

ANOTHER = """
def largest_scale(gradient):
    ends = torch.stack([gradient.max(), -gradient.min()])
    dist.all_reduce(ends, op=dist.ReduceOp.MAX)
    scale = 1.0
    while ends.max().item() * scale * 2 <= torch.finfo(torch.float16).max:
        scale *= 2
    return scale
"""
