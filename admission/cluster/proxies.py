"""The HTTP proxy of the environment. aiohttp's `trust_env` would take credentials from ~/.netrc, too."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of_environment(server: str) -> str | None:
    """The URL of the proxy by HTTPS_PROXY and NO_PROXY; None for loopback addresses, or without a proxy."""
    parts = urlsplit(server)
    host = parts.hostname or ""
    if host == "localhost" or proxy_bypass(host):
        return None
    try:
        if ip_address(host).is_loopback:
            return None
    except ValueError:
        pass  # a name, not an address
    proxy = getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
