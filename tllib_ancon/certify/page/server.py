"""Serving the page until the person ends it."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable

from PIL import Image

from tllib_ancon.certify.session import Session
from tllib_ancon.data.decoding import load_image
from tllib_ancon.errors import UserError

HOST = "127.0.0.1"
PORT = 8765


def serve(
    session: Session,
    read: Callable[[int], Image.Image] | None = None,
    port: int = PORT,
    say: Callable[[str], None] = print,
) -> None:
    """Show the page until the person ends the session there, or Ctrl-C; the session then has the answers.

    Args:
        session (Session): what is asked; with a log, every answer is on the disk before the next image is shown
        read (callable, optional): position of an image -> the image. By default it reads the file of that name
        port (int): of 127.0.0.1; 0 for any that is free. Default: 8765
        say (callable): called with the address

    Raises:
        UserError: the port is in use or is none; starlette or uvicorn is not installed
    """
    try:
        import uvicorn

        from tllib_ancon.certify.page.application import create_app
    except ImportError:
        raise UserError("the page needs starlette and uvicorn: pip install 'tllib-ancon[page]'") from None

    def read_file(position: int) -> Image.Image:
        return load_image(session.comparison.names[position])

    def finish() -> None:
        server.should_exit = True

    token = secrets.token_urlsafe(16)
    app = create_app(session, token, read or read_file, finish)
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=2))
    with listening(port) as listener:
        say(f"http://{HOST}:{listener.getsockname()[1]}/{token}/")
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:  # what uvicorn leaves of Ctrl-C after it has ended in order
            return


def listening(port: int) -> socket.socket:
    """A socket that listens on this port of 127.0.0.1.

    Raises:
        UserError: the port is in use, is none, or needs rights that this process has not
    """
    if not 0 <= port <= 65535:
        raise UserError(f"`port` lies between 0 and 65535, got {port}")
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen()
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).lower()
        raise UserError(f"port {port} of {HOST} cannot be used ({reason}); give another `port`, or 0 for any") from None
    return listener
