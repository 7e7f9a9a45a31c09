"""moto's server, with one change of an object at a time.

moto checks the condition of a write and stores the object in two steps, and answers each connection in a thread of its
own: now and then two writers that came at once are both told that they have won. Interlock's probe refuses such a
bucket, rightly. Here writes queue behind one lock, so that the emulator keeps the promise that it emulates; reads do
not wait. The program takes the port as its only argument.
"""

import sys
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class OneWriteAtATime:
    """A WSGI application whose requests other than reads are answered one after the other."""

    def __init__(self, application: "WSGIApplication") -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] in ("GET", "HEAD"):
            return self._application(environ, start_response)
        with self._lock:
            return list(self._application(environ, start_response))


if __name__ == "__main__":
    emulator = DomainDispatcherApplication(create_backend_app)
    run_simple(
        "127.0.0.1", int(sys.argv[1]), OneWriteAtATime(emulator), threaded=True, request_handler=MotoRequestHandler
    )
