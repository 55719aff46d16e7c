"""What stands before every answer of the page: its token, and headers that keep other pages out."""

from __future__ import annotations

import secrets

from starlette.datastructures import MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RequireToken:
    """Refuses every address that does not begin with ``/<token>/``."""

    def __init__(self, app: ASGIApp, token: str):
        self.app = app
        self.prefix = f"/{token}/".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"].encode(errors="replace")
        if secrets.compare_digest(path[: len(self.prefix)], self.prefix):
            await self.app(scope, receive, send)
        else:
            refusal = PlainTextResponse("open the address that the command printed: it ends in a token", 403)
            await refusal(scope, receive, send)


class AddHeaders:
    """Adds :data:`HEADERS` to every answer that has not its own."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)
