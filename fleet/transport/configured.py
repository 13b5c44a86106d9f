"""Connections as an ssh config and `proxy_jump` have them: fabric makes those."""

from __future__ import annotations

from typing import Any

from fabric import Config, Connection

from fleet.model.inventory import Host
from fleet.transport.direct import credentials
from fleet.transport.lean import with_invoke


def configured(host: Host, limit: float, options: dict[str, Any]) -> Connection:
    """A connection through all its jump hosts, not open. `limit` s for each hop."""
    with_invoke()
    path = str(host.ssh_config) if host.ssh_config else None
    config = Config(lazy=True, runtime_ssh_path=path)
    config.load_ssh_config()
    own = {**options, **credentials(host)}
    of_hops = {name: value for name, value in own.items() if name != "password"}
    gateway = None
    for hop in host.proxy_jump.split(",") if host.proxy_jump else ():
        gateway = Connection(
            hop.strip(),
            config=config,
            gateway=gateway,
            connect_timeout=limit,
            connect_kwargs=dict(of_hops),
        )
    connection = Connection(
        host.address or host.name,
        user=host.user,
        port=host.port,
        config=config,
        gateway=gateway,
        connect_timeout=limit,
        connect_kwargs=own,
    )
    hop = connection.gateway
    while isinstance(hop, Connection):
        hop.connect_kwargs = {**options, **hop.connect_kwargs}
        hop.connect_timeout = limit
        hop = hop.gateway
    return connection
