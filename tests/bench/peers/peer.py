"""Say which ways to run ranks are compared, and how each is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from . import install
from .cells import LAUNCH, MONARCH, NBDISTRIBUTED, PROGRAMS, RAY, STOCK, Cells


@dataclass(frozen=True)
class Peer:
    """One way to run ranks."""

    name: str  #: on the command line
    label: str  #: in tables and figures
    program: str  #: in ``programs``
    way: str  #: what the program uses of it, for a reader who knows it
    packages: Sequence[str]  #: whose versions the table gives
    installs: str = ""  #: the package to install for it; empty if requirements.lock has it
    stays: bool = True  #: whether the ranks are still there for the next cell
    calls: str = ""  #: what an empty cell is; empty if there is no cell but a new run
    torchrun: bool = False  #: whether the program is a script of torchrun's
    server: bool = False  #: whether the kernel is the child of a Jupyter server of the program's
    cells: Cells | None = None  #: how two ranks run the code of a cell; None: it is no notebook's

    def python(self) -> str:
        """Return the interpreter that runs the program."""
        return str(install.python_of(self.installs)) if self.installs else sys.executable

    def command(self, ranks: int, what: str) -> list[str]:
        """Return the command that runs the program: ``what`` is for those that do not stay."""
        script = str(PROGRAMS / f"{self.program}.py")
        if self.torchrun:
            flags = ["--standalone", f"--nproc-per-node={ranks}"]
            return [self.python(), "-m", "torch.distributed.run", *flags, script, what]
        return [self.python(), script, str(ranks), what]

    def notebook(self) -> list[str]:
        """Return the command that runs ``cells``, which it reads, in a kernel."""
        assert self.cells is not None
        return [self.python(), str(PROGRAMS / f"{self.cells.program}.py")]


PEERS = (
    Peer(
        "labkit",
        "labkit",
        "labkit_lab",
        way="labkit.start(n), %%px cells",
        packages=["torch-labkit", "torch"],
        calls="%%px",
        cells=Cells(["import labkit\nlab = labkit.start(2)"], "%%px\nCODE"),
    ),
    Peer(
        "torchrun",
        "torchrun",
        "torchrun_script",
        way="torchrun --standalone --nproc-per-node=n script.py",
        packages=["torch"],
        stays=False,
        torchrun=True,
    ),
    Peer(
        "spawn",
        "mp.spawn",
        "mp_spawn",
        way="torch.multiprocessing.spawn(function, nprocs=n)",
        packages=["torch"],
        stays=False,
    ),
    Peer(
        "ipyparallel",
        "stock ipyparallel",
        "ipyparallel_stock",
        way="ipp.Cluster(n=n), group formed in a %%px cell, %%px cells",
        packages=["ipyparallel", "torch"],
        calls="%%px",
        cells=Cells([STOCK], "%%px\nCODE"),
    ),
    Peer(
        "launcher",
        "notebook_launcher",
        "notebook_launcher",
        way="accelerate.notebook_launcher(function, num_processes=n)",
        packages=["accelerate", "torch"],
        installs="accelerate",
        stays=False,
        calls="a launch of an empty function",
        cells=Cells(["from accelerate import notebook_launcher"], LAUNCH),
    ),
    Peer(
        "nbdistributed",
        "nbdistributed",
        "nbdistributed_magics",
        way="%dist_init -n n, cells",
        packages=["nbdistributed", "torch"],
        installs="nbdistributed",
        calls="a cell",
        cells=Cells(["%load_ext nbdistributed", NBDISTRIBUTED], "CODE"),
    ),
    Peer(
        "jupyter-distributed",
        "jupyter-distributed",
        "jupyter_processes",
        way="Processes: n in JupyterLab (what its page says to the server), group formed in a cell",
        packages=["jupyter-distributed", "jupyterlab", "torch"],
        installs="jupyter-distributed",
        calls="a cell",
        server=True,
        cells=Cells(["import os\nrank = int(os.environ['RANK'])"], "CODE", program="in_lab"),
    ),
    Peer(
        "monarch",
        "Monarch",
        "monarch_actors",
        way="this_host().spawn_procs, setup_torch_elastic_env, endpoint.call().get()",
        packages=["torchmonarch", "torch"],
        installs="torchmonarch",
        calls="an endpoint called on all actors",
        cells=Cells([MONARCH], "everyone.run.call(TEXT).get()"),
    ),
    Peer(
        "ray",
        "Ray",
        "ray_actors",
        way="ray.init(num_cpus=n), one actor per rank, group formed in a method",
        packages=["ray", "torch"],
        installs="ray",
        calls="a method called on all actors",
        cells=Cells([RAY], "ray.get([member.run.remote(TEXT) for member in everyone])"),
    ),
)
