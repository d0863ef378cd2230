"""What stands before every request: only this machine asks, only by its own name, and only so much.

A page of another site can make a browser send requests to 127.0.0.1. It cannot choose their Host header, so a name
that is not ours is refused (which stops DNS rebinding), and an Origin that is not ours as well.
"""

from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from urllib.parse import SplitResult, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

LARGEST_BODY = 8 * 2**20
"""Bytes of a request: a hundred thousand tokens of a text are refused by their number, not by this."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data: blob:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}

Next = Callable[[Request], Awaitable[Response]]


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


async def guard(request: Request, call_next: Next) -> Response:
    """Refuse what does not come from here; give every answer the headers of a page that fetches nothing from afar."""
    problem = refusal(request)
    response = await call_next(request) if problem is None else _refused(*problem)
    for name, value in HEADERS.items():
        response.headers[name] = value
    return response


def refusal(request: Request) -> tuple[int, str] | None:
    """What is wrong with a request, and its status."""
    host = request.headers.get("host", "")
    if not is_loopback(_parts(f"//{host}").hostname or ""):
        return 421, "this server answers to 127.0.0.1 and localhost alone"
    origin = request.headers.get("origin")
    if origin is not None and _parts(origin).netloc != host:
        return 403, "another site's page may not ask"
    length = request.headers.get("content-length", "0")
    if request.method == "POST":
        if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            return 415, "send JSON"
        if "content-length" not in request.headers or not length.isdecimal():
            return 411, "say how long the request is"
        if int(length) > LARGEST_BODY:
            return 413, f"a request may have {LARGEST_BODY:,} bytes, and this has {int(length):,}"
    return None


def _parts(address: str) -> SplitResult:
    """Of an address that may be none: one with half a bracket has no name, and is nobody's."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


def _refused(status: int, problem: str) -> Response:
    remedy = "give a shorter text" if status == 413 else "open the page at the address it was started with"
    return JSONResponse({"error": problem, "remedy": remedy}, status)
