"""The pages: files that were built from `web/`, given to anyone; what they show needs a login of its own."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.gateway import problems
from holdfast.log import Threads

BUILT: Final = Path(__file__).with_name("built")
INDEX: Final = "/index.html"
ASSETS: Final = "/assets/"
# Programs call these: whatever they miss is answered with a problem, never with a page.
PROGRAMS: Final = frozenset({"api", "v1", "ws", "mcp", "healthz", "metrics", "openapi.json", ".well-known"})
# Routes of plugins; `/plugins` itself is a place within the pages.
PLUGINS: Final = "/plugins/"
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        "connect-src 'self'; manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_TYPES: Final = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
# What requests are counted under; the paths themselves must not become labels.
_ROUTE: Final = SimpleNamespace(path="pages")
_UNBUILT: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Holdfast</title>
<h1>Holdfast is running, but its pages are not built</h1>
<p>In the folder of the sources, <code>make pages</code> builds them; then load this again. It fetches
packages, so it needs a network once. All else works without: <code>holdfast --help</code>, and the API
(<code>docs/http.md</code>).</p>
</html>
"""


def is_page(scope: Scope, headers: Headers) -> bool:
    """Whether a request is for a file of the pages, or by a browser for a place within them."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    if path[1:].partition("/")[0] in PROGRAMS or path.startswith(PLUGINS):
        return False
    return path == "/" or _is_file(path) or "text/html" in headers.get("accept", "")


def is_built() -> bool:
    return (BUILT / INDEX[1:]).is_file()


@dataclass(frozen=True, slots=True)
class File:
    data: bytes
    packed: bytes
    media_type: str


class Site:
    """Takes what is for the pages, before any route; all else goes on to the app.

    Only what was found in the folder can be asked for: no path is ever made from a request.
    """

    def __init__(self, app: ASGIApp, threads: Threads, folder: Path) -> None:
        self.app = app
        self._threads = threads
        self._folder = folder
        self._files: Mapping[str, File] = {}
        self._built_at = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not scope.get("state", {}).get("page"):
            await self.app(scope, receive, send)
            return
        scope["route"] = _ROUTE
        files = await self._threads(self._current)
        response = _answer(files, scope["path"], Headers(scope=scope))
        await response(scope, receive, send)

    def _current(self) -> Mapping[str, File]:
        """The files as they were last built; a new build is taken up without a restart."""
        try:
            built_at = (self._folder / INDEX[1:]).stat().st_mtime_ns
        except FileNotFoundError:
            return {}
        if built_at != self._built_at:
            self._files, self._built_at = _read(self._folder), built_at
        return self._files


def _answer(files: Mapping[str, File], path: str, headers: Headers) -> Response:
    if not files and not _is_file(path):
        return Response(_UNBUILT, 503, HEADERS | {"Cache-Control": "no-store"}, "text/html")
    name = path if _is_file(path) else INDEX
    found = files.get(name)
    if found is None:
        return problems.problem(404, "not_found", "Not Found")
    keep = "public, max-age=31536000, immutable" if name.startswith(ASSETS) else "no-cache"
    more = HEADERS | {"Cache-Control": keep, "Vary": "Accept-Encoding"}
    if "gzip" in headers.get("accept-encoding", ""):
        return Response(found.packed, 200, more | {"Content-Encoding": "gzip"}, found.media_type)
    return Response(found.data, 200, more, found.media_type)


def _is_file(path: str) -> bool:
    """Places within the pages have no dot in their last word; files have."""
    return path.startswith(ASSETS) or "." in path.rpartition("/")[2]


def _read(folder: Path) -> dict[str, File]:
    return {
        "/" + path.relative_to(folder).as_posix(): _file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def _file(path: Path) -> File:
    data = path.read_bytes()
    return File(data, gzip.compress(data, mtime=0), _TYPES.get(path.suffix, "application/octet-stream"))
