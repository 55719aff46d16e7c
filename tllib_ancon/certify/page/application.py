"""The addresses of the page: its three files, the state, the images in question, and what the person does."""

from __future__ import annotations

import io
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import numpy as np
from PIL import Image, ImageOps
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route

from tllib_ancon.certify.answers import ANOTHER, CANNOT_TELL
from tllib_ancon.certify.certificate import certificate_of, in_words
from tllib_ancon.certify.page.guards import AddHeaders, RequireToken
from tllib_ancon.certify.session import Session
from tllib_ancon.errors import UserError

HOSTS = ["127.0.0.1", "localhost"]
FILES = {
    "": ("page.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "page.js": ("page.js", "text/javascript"),
}
LARGEST_SIDE = 1600
FLOOR, CEILING = -3.0, 9.0
"""Of the powers of ten that the curves show, so that certainty has a number."""


def create_app(
    session: Session, token: str, read: Callable[[int], Image.Image], finish: Callable[[], None]
) -> Starlette:
    """The page as an ASGI application below ``/<token>/``.

    Args:
        session (Session): what is asked
        token (str): first part of every address
        read (callable): position of an image -> the image
        finish (callable): is called when the person ends the session
    """
    page = _Page(session, read, finish)
    routes = [
        *(Route(f"/{name}", page.file) for name in FILES),
        Route("/state", page.state),
        Route("/image/{number:int}", page.image),
        Route("/answer", page.answer, methods=["POST"]),
        Route("/undo", page.undo, methods=["POST"]),
        Route("/finish", page.finish, methods=["POST"]),
    ]
    guards = [
        Middleware(AddHeaders),
        Middleware(TrustedHostMiddleware, allowed_hosts=HOSTS, www_redirect=False),
        Middleware(RequireToken, token=token),
    ]
    return Starlette(routes=[Mount(f"/{token}", routes=routes)], middleware=guards)


def state_of(session: Session) -> dict[str, Any]:
    """What the page shows, ready for JSON. Names of images are left out: that of a folder can tell the class."""
    curves = [np.clip(curve / np.log(10), FLOOR, CEILING).round(4).tolist() for curve in session.test.log_curves]
    return {
        "answered": len(session.answers),
        "total": len(session),
        "images": len(session.comparison),
        "options": _options(session),
        "last": session.described(session.answers[-1]) if session.answers else None,
        "verdict": session.verdict,
        "words": in_words(certificate_of(session)) if session.settled else [],
        "points": [round(100 * end, 2) for end in session.test.interval],
        "curves": {"better": [0, *curves[0]], "worse": [0, *curves[1]]},
        "decides": float(np.log10(session.test.threshold)),
    }


def _options(session: Session) -> list[dict[str, Any]]:
    """The four possible answers to the question; none if nothing is asked."""
    if session.question is None:
        return []
    named = [{"answer": number, "text": session.comparison.classes[number]} for number in session.question.options]
    return [*named, {"answer": ANOTHER, "text": "Another class"}, {"answer": CANNOT_TELL, "text": "Cannot tell"}]


class _Page:
    """The answers to all requests. One event loop runs what changes the session, so that no two do at once."""

    def __init__(self, session: Session, read: Callable[[int], Image.Image], finish: Callable[[], None]):
        self.session = session
        self.read = read
        self.end = finish

    async def file(self, request: Request) -> Response:
        name, kind = FILES[request.url.path.rpartition("/")[2]]
        return Response(files(__package__).joinpath(name).read_bytes(), media_type=kind)

    async def state(self, request: Request) -> Response:
        return JSONResponse(state_of(self.session))

    async def image(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number >= len(self.session):
            return PlainTextResponse("no such question", 404)
        try:
            content = await run_in_threadpool(lambda: _jpeg(self.read(self.session.asked(number).position)))
        except UserError as error:
            return PlainTextResponse(str(error), 404)
        return Response(content, media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"})

    async def answer(self, request: Request) -> Response:
        return await self._change(request, lambda given: self.session.answer(given["answer"]))

    async def undo(self, request: Request) -> Response:
        return await self._change(request, lambda given: self.session.undo())

    async def finish(self, request: Request) -> Response:
        return JSONResponse({}, background=BackgroundTask(self.end))

    async def _change(self, request: Request, change: Callable[[dict[str, Any]], None]) -> Response:
        """Do it, unless the person saw another state than there is: two windows, or one click twice."""
        try:
            given = await request.json()
            seen = given["answered"]
            given.setdefault("answer", None)
        except (ValueError, KeyError, TypeError, AttributeError):
            return JSONResponse({"error": "not a request of this page"}, 400)
        if seen != len(self.session.answers):
            return JSONResponse({"error": "this was answered in another window", **state_of(self.session)}, 409)
        try:
            change(given)
        except UserError as error:
            return JSONResponse({"error": str(error), **state_of(self.session)}, 422)
        return JSONResponse(state_of(self.session))


def _jpeg(image: Image.Image) -> bytes:
    """The image upright, of :data:`LARGEST_SIDE` pixels at most, without its metadata."""
    upright = ImageOps.exif_transpose(image).convert("RGB")
    upright.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
    upright.info.clear()
    content = io.BytesIO()
    upright.save(content, "JPEG", quality=95, subsampling=0)
    return content.getvalue()
