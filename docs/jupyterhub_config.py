"""JupyterHub for a class on one machine, where each learner has an account of the system.

How to use it, and what was seen with it, is in TEACHING.md, "Thirty people on one machine".
"""

import sys
from pathlib import Path

BIN = Path(sys.executable).parent  #: of an environment that all can read and only root can change
CLASS = Path("/srv/class")  #: one folder per learner, which its learner owns and teachers can read

c = get_config()  # noqa: F821  (JupyterHub defines it)

c.JupyterHub.bind_url = "http://127.0.0.1:8000"  # a web server with TLS stands in front of it
c.JupyterHub.authenticator_class = "pam"
c.Authenticator.allow_all = True  # each account of the system

# The learner's copy is made, or brought up to date, each time a server starts; then comes the
# server. Both run as the learner.
c.JupyterHub.spawner_class = "localprocess"
c.Spawner.notebook_dir = f"{CLASS}/{{username}}"
c.Spawner.default_url = "/lab/tree/notebooks/00_start_here.ipynb"
c.Spawner.cmd = [
    "sh",
    "-c",
    'labkit new "$JUPYTERHUB_ROOT_DIR"; exec jupyterhub-singleuser "$@"',
    "labkit",
    # Without it every user of the machine can read what a kernel prints (docs/THREATS.md).
    "--KernelManager.transport_encryption=auto",
]
c.Spawner.environment = {
    "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin",
    "LABKIT_MAX_RANKS": "4",
    "OMP_NUM_THREADS": "1",
}
# When a class begins: the default is 30 s, and a busy machine has taken 42 (docs/TEACHING.md).
c.Spawner.start_timeout = c.Spawner.http_timeout = 180

# A server that nobody has used for an hour is stopped, with its kernels and their ranks.
c.JupyterHub.services = [
    {
        "name": "idle-culler",
        "command": [sys.executable, "-m", "jupyterhub_idle_culler", "--timeout=3600"],
    }
]
c.JupyterHub.load_roles = [
    {
        "name": "idle-culler",
        "services": ["idle-culler"],
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
    }
]
