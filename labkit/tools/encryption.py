"""Encrypt what a notebook's kernel and its front end say to each other, where Jupyter can.

A kernel listens on loopback. Its messages are signed, so nobody else gets a cell run; but without
encryption every user of the machine can subscribe to what the kernel prints.
"""

from __future__ import annotations

#: The setting of jupyter_client's KernelManager: with "auto" a kernel that can gets keys.
SETTING = "transport_encryption"


def settings() -> dict[str, str]:
    """Return what a KernelManager is to be told; nothing where jupyter_client or ZeroMQ is too old
    or was built without encryption."""
    import zmq
    from jupyter_client.manager import KernelManager

    return {SETTING: "auto"} if hasattr(KernelManager, SETTING) and zmq.has("curve") else {}


def why_not() -> str:
    """Say why the kernels that labkit's commands start are not encrypted, "" if they are."""
    from jupyter_client.kernelspec import NoSuchKernel, get_kernel_spec

    if not settings():
        return "this jupyter_client, or its ZeroMQ, cannot encrypt"
    try:
        known = get_kernel_spec("python3").metadata
    except NoSuchKernel:
        return "no kernel python3 is installed"
    return "" if "supported_encryption" in known else "this ipykernel cannot encrypt"
