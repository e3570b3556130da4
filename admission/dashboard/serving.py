"""Handlers for the dashboard's static files: one HTML page for all paths below `/ui/`, its scripts and style sheet.

The files contain no data and need no authentication; the scripts load data from the REST API with the session of the
user. The files are read once, on the first request.
"""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from aiohttp import web

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

PUBLIC_ROUTES: Final = ("/", "/ui", "/ui/{page}", "/ui/assets/{digest}/{file}")
"""Patterns of the dashboard's routes in aiohttp's form. They need no authentication."""

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
"""Content-Security-Policy of the page: no inline script or style, no eval, no other hosts, no HTML from strings."""
_TYPES: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_YEAR_SECONDS: Final = 365 * 86400


@dataclass(frozen=True, slots=True)
class _File:
    """A static file, also compressed."""

    body: bytes
    gzipped: bytes
    media_type: str

    @classmethod
    def of(cls, body: bytes, media_type: str) -> _File:
        return cls(body, gzip.compress(body, mtime=0), media_type)

    def answer(self, request: web.Request, headers: dict[str, str]) -> web.Response:
        """Return a response with the file; compressed, to a third of its size, if the client accepts gzip."""
        headers = headers | {"Vary": "Accept-Encoding"}
        body = self.body
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body, headers["Content-Encoding"] = self.gzipped, "gzip"
        return web.Response(body=body, content_type=self.media_type, charset="utf-8", headers=headers)


@dataclass(frozen=True, slots=True)
class _Site:
    """The page and its assets."""

    page: _File
    assets: dict[str, _File]
    """By path, such as `pages/queue.js`."""
    digest: str
    """Digest of all assets, a part of their URLs: browsers may cache them without expiry."""


def add_dashboard(app: web.Application) -> None:
    """Add the routes of the dashboard to `app`."""
    app.router.add_get("/", _to_dashboard)
    app.router.add_get("/ui", _to_dashboard)
    app.router.add_get("/ui/assets/{digest}/{file:.+}", _asset)
    app.router.add_get("/ui/{page:.*}", _page)


async def _to_dashboard(request: web.Request) -> web.Response:
    del request
    return web.Response(status=302, headers={"Location": "/ui/"})


async def _page(request: web.Request) -> web.Response:
    """Return the HTML page; its script reads from the URL which page of the dashboard to show."""
    return _site().page.answer(request, {"Content-Security-Policy": _POLICY})


async def _asset(request: web.Request) -> web.Response:
    """Return an asset; 404 under the digest of another version, so that a page never mixes assets of two versions."""
    site = _site()
    found = site.assets.get(request.match_info["file"])
    if found is None or request.match_info["digest"] != site.digest:
        raise web.HTTPNotFound
    return found.answer(request, {"Cache-Control": f"public, max-age={_YEAR_SECONDS}, immutable"})


@cache
def _site() -> _Site:
    folder = files(__package__).joinpath("static")
    contents = dict(sorted(_read(folder, "")))
    template = contents.pop("index.html").decode()
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + body for name, body in contents.items())).hexdigest()[:16]
    base = f"/ui/assets/{digest}"
    # Modules import one another: without preloads browsers would request them one level of imports after the other.
    modules = [name for name in contents if name.endswith(".js") and name != "theme.js"]
    preloads = "\n".join(f'<link rel="modulepreload" href="{base}/{name}">' for name in modules)
    page = template.replace("{{assets}}", base).replace("{{preloads}}", preloads).encode()
    assets = {name: _File.of(body, _TYPES[name[name.rindex(".") :]]) for name, body in contents.items()}
    return _Site(_File.of(page, "text/html"), assets, digest)


def _read(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in folder.iterdir():
        name = f"{prefix}{entry.name}"
        found += _read(entry, f"{name}/") if entry.is_dir() else [(name, entry.read_bytes())]
    return found
