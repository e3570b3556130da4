"""HTTP proxy from environment variables. aiohttp's `trust_env` is not used: it also reads credentials from ~/.netrc."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


def proxy_of_environment(server: str) -> str | None:
    """Return the proxy's URL by HTTPS_PROXY and NO_PROXY; None for a loopback address, or without a proxy."""
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
