"""Tell the controller that ranks have ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..base import times


def unregister(info: Mapping[str, Any], exits: Mapping[int, int | None]) -> None:
    """Take engines off the hub's list.

    Parameters
    ----------
    info
        How engines reach the controller: ipyparallel's connection information.
    exits
        How the processes ended, by the id that the hub gave the engine. The exit code is for a
        controller that passes it on (``OwnedController``).
    """
    import zmq
    from ipyparallel import util
    from jupyter_client.session import Session

    session = Session(
        key=info["key"].encode(),
        packer=info["pack"],
        unpacker=info["unpack"],
        signature_scheme=info["signature_scheme"],
    )
    key = (info.get("curve_serverkey") or "").encode()
    public, secret = zmq.curve_keypair() if key else (b"", b"")
    with zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.LINGER = int(1000 * times.NOTICE_SENT.seconds())
        proto, ip = info["interface"].split("://")
        ip = util.disambiguate_ip_address(ip, info["location"])
        util.connect(
            socket,
            f"{proto}://{ip}:{info['registration']}",
            curve_serverkey=key or None,
            curve_publickey=public or None,
            curve_secretkey=secret or None,
        )
        for engine, code in exits.items():
            session.send(socket, "unregistration_request", content={"id": engine, "code": code})
        socket.close()
