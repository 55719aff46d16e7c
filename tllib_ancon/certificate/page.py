"""The labelling session as a web page on this machine, and for nobody else.

It listens on 127.0.0.1. Every address needs the printed token, and a request with another Host fails. Of the disk it
serves the images in question, re-encoded, and nothing else.
"""

import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tllib_ancon.certificate.session import Session, in_words
from tllib_ancon.data.answers import ANOTHER, CANNOT_TELL
from tllib_ancon.data.images import jpeg
from tllib_ancon.runtime.errors import UserError
from tllib_ancon.runtime.text import say

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.background import BackgroundTask
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import Mount, Route
except ImportError:
    raise UserError("the page needs starlette and uvicorn: pip install starlette uvicorn") from None

HOST = "127.0.0.1"
PORT = 8765
HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Of every answer that has not its own: they keep other pages out."""


def serve(session: Session, port: int = PORT, say: Callable[[str], None] = say) -> None:
    """Show the page until the user ends the session there, or Ctrl-C."""

    def finish() -> None:
        server.should_exit = True

    token = secrets.token_urlsafe(16)
    app = create_app(session, token, finish)
    silent = uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=2, server_header=False)
    server = uvicorn.Server(silent)
    try:
        listener = socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise UserError(f"port {port} of {HOST} cannot be used ({reason}); give another `port`, or 0 for any") from None
    with listener:
        say(f"open this in a browser, and press Ctrl-C here to end: http://{HOST}:{listener.getsockname()[1]}/{token}/")
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # what uvicorn leaves of Ctrl-C after it has ended in order
            return


def create_app(session: Session, token: str, finish: Callable[[], None]) -> Starlette:
    """The page as an ASGI application below ``/<token>/``; one event loop runs all that changes the session."""

    async def guard(request: Request, answer: RequestResponseEndpoint) -> Response:
        path, prefix = request.scope["path"].encode(errors="replace"), f"/{token}/".encode()
        if secrets.compare_digest(path[: len(prefix)], prefix):
            response = await answer(request)
        else:
            response = PlainTextResponse("open the address that the command printed: it ends in a token", 403)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    async def file(request: Request) -> Response:
        return FileResponse(Path(__file__).with_name(request.url.path.rpartition("/")[2] or "page.html"))

    async def state(request: Request) -> Response:
        return JSONResponse(state_of(session))

    async def image(request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(session):
            return PlainTextResponse("no such question", 404)
        try:
            content = await run_in_threadpool(lambda: jpeg(session.image(session.asked(number).position)))
        except UserError:  # its message names the folder of the image, which can tell the class
            return PlainTextResponse("this image cannot be read", 404)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    def changing(change: Callable[[Any], None]) -> Callable[[Request], Awaitable[Response]]:
        """Do it, unless the user saw another state than there is: two windows, or one click twice."""

        async def changed(request: Request) -> Response:
            try:
                given = await request.json()
                seen, answer = given["answered"], given.get("answer")
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                return JSONResponse({"error": "not a request of this page"}, 400)
            if seen != len(session.answers):
                return JSONResponse({"error": "this was answered in another window", **state_of(session)}, 409)
            try:
                change(answer)
            except UserError as error:
                return JSONResponse({"error": str(error), **state_of(session)}, 422)
            return JSONResponse(state_of(session))

        return changed

    async def end(request: Request) -> Response:
        return JSONResponse({}, background=BackgroundTask(finish))

    routes = [
        *(Route(f"/{name}", file) for name in ("", "page.css", "page.js")),
        Route("/state", state),
        Route("/image/{number:int}", image),
        Route("/answer", changing(session.answer), methods=["POST"]),
        Route("/undo", changing(lambda _: session.undo()), methods=["POST"]),
        Route("/finish", end, methods=["POST"]),
    ]
    guards = [
        Middleware(BaseHTTPMiddleware, dispatch=guard),
        Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False),
    ]
    return Starlette(routes=[Mount(f"/{token}", routes=routes)], middleware=guards)


def state_of(session: Session) -> dict[str, Any]:
    """State of the page; it never shows an image's name or, before the verdict, which model predicts which class."""
    question, options = session.question, []
    if question is not None:
        options = [{"answer": number, "text": session.comparison.classes[number]} for number in question.options]
        options += [{"answer": ANOTHER, "text": "Another class"}, {"answer": CANNOT_TELL, "text": "Cannot tell"}]
    outcome = {"verdict": session.test.verdict, "words": in_words(session.certificate)} if question is None else {}
    return {
        "answered": len(session.answers),
        "image": None if question is None else len(session.answers),
        "total": len(session),
        "options": options,
        "last": session.described(session.answers[-1]) if session.answers else None,
        **outcome,
    }
