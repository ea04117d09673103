SETUP = "import socket\nimport uuid\n"

WRONG = {
    "all ranks on a node": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={nodes * per_node}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
    return ["torchrun", *options, *script]
""",
        "--nproc-per-node counts the processes of one node",
    ),
    "one process on a node": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
    return ["torchrun", *options, *script]
""",
        "Without --nproc-per-node",
    ),
    "standalone": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = ["--standalone", f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
    return ["torchrun", *options, *script]
""",
        "--standalone is for one node",
    ),
    "one node": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nproc-per-node={per_node}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
    return ["torchrun", *options, *script]
""",
        "--nnodes is missing",
    ),
    "the script first": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
    return ["torchrun", *script, *options]
""",
        "What comes after the script is the script's",
    ),
    "the script's arguments first": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
    return ["torchrun", *options, *script[1:], script[0]]
""",
        "torchrun refuses this line",
    ),
    "its own host": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={socket.gethostname()}:29400"]
    return ["torchrun", *options, *script]
""",
        "All agents meet at one place",
    ),
    "no endpoint": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}", "--rdzv-backend=c10d"]
    return ["torchrun", *options, *script]
""",
        "All agents meet at one place",
    ),
    "static": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
    options += [f"--master-addr={host}", "--master-port=29400", "--node-rank=0"]
    return ["torchrun", *options, *script]
""",
        "That is the static way",
    ),
    "an id of its own": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}", f"--rdzv-id={uuid.uuid4()}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
    return ["torchrun", *options, *script]
""",
        "The command differs from call to call",
    ),
    "numbers": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = ["--nnodes", nodes, "--nproc-per-node", per_node]
    options += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{host}:29400"]
    return ["torchrun", *options, *script]
""",
        "Every word of a command is text",
    ),
    "one text": (
        """
def torchrun_command(nodes, per_node, host, script):
    return (
        f"torchrun --nnodes={nodes} --nproc-per-node={per_node} --rdzv-backend=c10d "
        f"--rdzv-endpoint={host}:29400 {' '.join(script)}"
    )
""",
        "A command is a list",
    ),
    "no program": (
        """
def torchrun_command(nodes, per_node, host, script):
    options = [f"--nnodes={nodes}", f"--nproc-per-node={per_node}"]
    options += ["--rdzv-backend=c10d", f"--rdzv-endpoint={host}:29400"]
    return ["python", *options, *script]
""",
        "The first word is the program",
    ),
    "prints": (
        """
def torchrun_command(nodes, per_node, host, script):
    print("torchrun --nnodes=2 --nproc-per-node=4 train.py")
""",
        "nothing",
    ),
}

ANOTHER = """
import sys


def torchrun_command(nodes, per_node, host, script):
    words = f"--nnodes {nodes}:{nodes} --nproc_per_node {per_node} --rdzv_backend c10d".split()
    words += ["--rdzv-id", "lab", "--rdzv_endpoint", host]
    return [sys.executable, "-m", "torch.distributed.run", *words, *script]
"""
