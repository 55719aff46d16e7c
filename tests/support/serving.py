"""The page, served in a thread of the test."""

import json
import threading
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from queue import Queue
from urllib.parse import urlsplit

from PIL import Image

from tllib_ancon.certificate.page import serve


def example_image(position):
    return Image.new("RGB", (320, 200), (position * 37 % 256, 90, 140))


class Visitor:
    """Requests to a page by the line that tells its address."""

    def __init__(self, told):
        self.address = told.split()[-1]
        self.parts = urlsplit(self.address)

    def get(self, path, headers=None, method="GET", body=None):
        """The answer for a path below the token, or from the root if it begins with a slash."""
        connection = HTTPConnection(self.parts.hostname or "", self.parts.port)
        try:
            place = path if path.startswith("/") else self.parts.path + path
            connection.request(method, place, body, headers or {})
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def post(self, path, body):
        response, content = self.get(path, method="POST", body=json.dumps(body))
        return response.status, json.loads(content)

    def state(self):
        return json.loads(self.get("state")[1])


@contextmanager
def served(session, read=example_image):
    addresses = Queue()
    session.image = read or session.image
    thread = threading.Thread(target=serve, args=(session, 0, addresses.put), daemon=True)
    thread.start()
    visitor = Visitor(addresses.get())
    try:
        yield visitor
    finally:
        with suppress(OSError):  # it has ended by itself
            visitor.post("finish", {})
        thread.join()
