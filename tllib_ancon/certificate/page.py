"""The labelling session as a web page on this machine, and for nobody else.

It listens on 127.0.0.1. Every address needs the printed token, and a request with another Host fails. Of the disk it
serves the images in question, re-encoded, and nothing else.
"""
# ruff: noqa: E402 - the line about a missing package comes before the imports that need it

import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tllib_ancon.certificate.answers import ANOTHER, CANNOT_TELL
from tllib_ancon.certificate.session import Session
from tllib_ancon.data.image_files import jpeg
from tllib_ancon.runtime.errors import UserError, named
from tllib_ancon.runtime.extras import require
from tllib_ancon.runtime.text import say

require("the page", "starlette", "uvicorn", extra="page")

import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from tllib_ancon.runtime.types import Show

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


def serve(session: Session, port: int = PORT, say: Show = say) -> None:
    """Show the page until the user ends the session there, or Ctrl-C."""

    def finish() -> None:
        server.should_exit = True

    token = secrets.token_urlsafe(16)
    page = _Page(session, finish)
    routes = [
        Route("/state", page.state),
        Route("/image/{number:int}", page.image),
        Route("/answer", page.answer, methods=["POST"]),
        Route("/undo", page.undo, methods=["POST"]),
        Route("/finish", page.end, methods=["POST"]),
        Mount("/", StaticFiles(directory=Path(__file__).with_name("static"), html=True)),
    ]
    guards = [
        Middleware(BaseHTTPMiddleware, dispatch=_guard(token)),
        Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"], www_redirect=False),
    ]
    settings = uvicorn.Config(
        Starlette(routes=[Mount(f"/{token}", routes=routes)], middleware=guards),
        log_level="critical",
        lifespan="off",
        timeout_graceful_shutdown=2,
        server_header=False,
    )
    server = uvicorn.Server(settings)
    with _listener(port) as listener:
        say(f"open this in a browser, and press Ctrl-C here to end: http://{HOST}:{listener.getsockname()[1]}/{token}/")
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # what uvicorn leaves of Ctrl-C after it has ended in order
            return


def _listener(port: int) -> socket.socket:
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise UserError(
            f"port {port} of {HOST} cannot be used ({reason})", f"give another {named('port')}, or 0 for any"
        ) from None


def _guard(token: str) -> Callable[[Request, RequestResponseEndpoint], Awaitable[Response]]:
    """Nothing without the token; with :data:`HEADERS` on every answer."""
    prefix = f"/{token}/".encode()

    async def guard(request: Request, respond: RequestResponseEndpoint) -> Response:
        path = request.scope["path"].encode(errors="replace")
        if secrets.compare_digest(path[: len(prefix)], prefix):
            response = await respond(request)
        else:
            response = PlainTextResponse("open the address that the command printed: it ends in a token", 403)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return guard


@dataclass(frozen=True)
class _Page:
    """What the page asks of a session. One event loop runs all that changes the session."""

    session: Session
    finish: Callable[[], None]

    async def state(self, request: Request) -> Response:
        return JSONResponse(_state_of(self.session))

    async def image(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(self.session):
            return PlainTextResponse("no such question", 404)
        try:
            content = await run_in_threadpool(self._read_image, number)
        except UserError:  # its message names the folder of the image, which can tell the class
            return PlainTextResponse("this image cannot be read", 404)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    def _read_image(self, number: int) -> bytes:
        question = self.session.asked(number)
        return jpeg(self.session.image(question.position))

    async def answer(self, request: Request) -> Response:
        return await self._change(request, self.session.answer)

    async def undo(self, request: Request) -> Response:
        return await self._change(request, lambda _: self.session.undo())

    async def _change(self, request: Request, change: Callable[[Any], None]) -> Response:
        """Change the session, unless the user saw another state of it, in two windows or by one click twice."""
        body = await request.json()
        if body["answered"] != len(self.session.answers):
            return self._refusal("this was answered in another window", 409)
        try:
            change(body.get("answer"))
        except UserError as error:
            return self._refusal(str(error), 422)
        return JSONResponse(_state_of(self.session))

    def _refusal(self, reason: str, status: int) -> Response:
        return JSONResponse({"error": reason, **_state_of(self.session)}, status)

    async def end(self, request: Request) -> Response:
        return JSONResponse({}, background=BackgroundTask(self.finish))


def _state_of(session: Session) -> dict[str, Any]:
    """State of the page; it never shows an image's name or, before the verdict, which model predicts which class."""
    answered = len(session.answers)
    state: dict[str, Any] = {"answered": answered, "image": None, "total": len(session), "options": [], "last": None}
    if answered:
        state["last"] = session.described(session.answers[-1])
    question = session.question
    if question is None:
        return {**state, "verdict": session.test.verdict, "words": session.words}
    classes = session.comparison.classes
    options: list[dict[str, Any]] = [{"answer": label, "text": classes[label]} for label in question.options]
    options.append({"answer": ANOTHER, "text": "Another class"})
    options.append({"answer": CANNOT_TELL, "text": "Cannot tell"})
    return {**state, "image": answered, "options": options}
