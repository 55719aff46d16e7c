"""The labelling session as a web page on this machine, and for nobody else.

It listens on 127.0.0.1, every address needs the token of the printed one, a request with another Host is refused. Of
the disk it serves the images in question, re-encoded, and nothing else.
"""

from tllib_ancon.certify.page.server import serve

__all__ = ["serve"]
