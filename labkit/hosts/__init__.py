"""Make several hosts on one machine: own names, own addresses, and links as slow as you like.

A host is a set of Linux namespaces (network, hostname, mounts) in which commands run. When
whoever made them ends, even by ``kill -9``, every process on them ends too, and nothing is left
on this machine. Linux, iproute2 and util-linux; root, or a system that lets every user make
namespaces, as most do: then a command on a host sees itself as root, and can do no more with this
machine's files than its user. ``unavailable_reason`` says what is missing.

>>> with labkit.hosts.network(2, rate="100mbit") as (h1, h2):
...     print(h1.run(["getent", "hosts", "h2"]).stdout.split()[-1])
h2
"""

from .host import Host
from .network import Network, network, unavailable_reason

__all__ = ["Host", "Network", "network", "unavailable_reason"]
