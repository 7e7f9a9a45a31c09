"""A server that speaks enough S3 for a log, and is careless with conditions in a way that can be chosen."""

import hashlib
import re
import threading
from typing import Literal

from tests.integration.objects.scripted import Reply, Request, ScriptedServer, xml

Care = Literal["careful", "ignores all", "ignores updates", "stores and refuses"]
MODIFIED = "Last-Modified: Mon, 02 Mar 2026 10:00:00 GMT"


class CarelessServer(ScriptedServer):
    """Objects in memory. "careful" is the control: the probe has to accept it."""

    def __init__(self, care: Care) -> None:
        super().__init__(script=self._reply)
        self._care = care
        self._lock = threading.Lock()
        self.objects: dict[str, bytes] = {}

    def _reply(self, request: Request) -> Reply:
        with self._lock:
            key = request.path.removeprefix("/bucket/")
            match request.method:
                case "PUT":
                    return self._put(key, request)
                case "GET" if key in self.objects:
                    data = self.objects[key]
                    return Reply(200, data, (f"ETag: {_tag(data)}", MODIFIED))
                case "POST":
                    keys = re.findall("<Key>(.*?)</Key>", request.body.decode())
                    for deleted in keys:
                        self.objects.pop(deleted, None)
                    told = "".join(f"<Deleted><Key>{deleted}</Key></Deleted>" for deleted in keys)
                    return Reply(200, f"<DeleteResult>{told}</DeleteResult>".encode(), ())
                case _:
                    return xml(404, "NoSuchKey")

    def _put(self, key: str, request: Request) -> Reply:
        taken = "if-none-match" in request.headers and key in self.objects
        stale = "if-match" in request.headers and request.headers["if-match"] != _tag(self.objects.get(key, b""))
        refused = taken or (stale and self._care != "ignores updates")
        if not refused or self._care in {"ignores all", "stores and refuses"}:
            self.objects[key] = request.body
        if refused and self._care != "ignores all":
            return xml(412, "PreconditionFailed")
        return Reply(200, b"", (f"ETag: {_tag(request.body)}",))


def _tag(data: bytes) -> str:
    return f'"{hashlib.sha256(data).hexdigest()}"'
