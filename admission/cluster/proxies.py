"""Which proxy the environment asks for: aiohttp's own look at it would also take credentials from ~/.netrc."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of_environment(server: str) -> str | None:
    """The proxy that HTTPS_PROXY and NO_PROXY ask for; never for this machine itself."""
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
