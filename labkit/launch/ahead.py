"""Fork the controller of a lab before this process has imported ipyparallel.

The controller takes as long to be there as the import does. ipyparallel's launcher then finds it
and asks for none (``ipp_launchers.LabkitControllerLauncher``).
"""

from __future__ import annotations

from pathlib import Path

from .warm_process import WarmProcess

#: What the warm process calls the controller.
CONTROLLER = "controller"
#: What the controller and the ranks write is shown when a start fails: not all that they log.
QUIET = ["--log-level=30"]


def fork_controller(warm: WarmProcess) -> None:
    """Ask a lab's warm process for its controller; returns at once."""
    profile = profile_folder(warm.root)
    profile.mkdir(mode=0o700)
    # As ipyparallel's launchers tell it: the profile of a cluster without a name.
    env = {"IPP_CLUSTER_ID": "", "IPP_PROFILE_DIR": str(profile)}
    warm.fork_ahead(CONTROLLER, "controller", [*arguments(warm.root), *QUIET], env)


def profile_folder(root: Path) -> Path:
    """Name the folder with the files of a lab's controller."""
    return root / "profile"


def arguments(root: Path) -> list[str]:
    """Return what each controller is started with that a warm process forks."""
    return [f"--LabController.socket_folder={root}/zmq"]
