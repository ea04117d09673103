"""Wrong and right answers to exercise 01-4."""

WRONG = {
    "takes NCCL everywhere": (
        """
def choose_backend(device, hosts, interconnect):
    return "nccl"
""",
        "NCCL moves tensors between NVIDIA GPUs only",
    ),
    "takes gloo over Ethernet": (
        """
def choose_backend(device, hosts, interconnect):
    if interconnect == "ethernet" or device == "cpu":
        return "gloo"
    return "nccl"
""",
        "On GPUs NCCL is the first choice over Ethernet too",
    ),
    "takes MPI over InfiniBand": (
        """
def choose_backend(device, hosts, interconnect):
    if interconnect.startswith("infiniband"):
        return "mpi"
    return "nccl" if device == "cuda" else "gloo"
""",
        "On GPUs NCCL speaks InfiniBand by itself",
    ),
    "takes MPI although there is IP": (
        """
def choose_backend(device, hosts, interconnect):
    if device == "cuda":
        return "nccl"
    return "mpi" if "infiniband" in interconnect else "gloo"
""",
        "Where InfiniBand carries IP",
    ),
    "knows two backends only": (
        """
def choose_backend(device, hosts, interconnect):
    return "nccl" if device == "cuda" else "gloo"
""",
        "Gloo talks over IP only",
    ),
}

ANOTHER = """
def choose_backend(device, hosts, interconnect):
    without_ip = interconnect == "infiniband"
    return {"cuda": "nccl", "cpu": "mpi" if without_ip else "gloo"}[device]
"""
