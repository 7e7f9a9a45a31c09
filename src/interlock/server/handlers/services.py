"""`Served`: the objects of one app that handlers use: service, databases, ring of signals, webhooks."""

from collections.abc import Mapping, Sequence

from interlock.database.database import Database
from interlock.server.handlers.databases import Databases
from interlock.server.handlers.stream import Ring
from interlock.server.handlers.webhooks import Webhook, by_source
from interlock.server.service import Service


class Served:
    """The objects that handlers receive."""

    def __init__(
        self,
        service: Service,
        *,
        home: str | None = None,
        databases: Mapping[str, Database] | None = None,
        webhooks: Sequence[Webhook] = (),
    ) -> None:
        self.service = service
        self.databases = Databases(home, databases, most=service.limits.databases_max)
        self.ring = Ring(service.engine, service.limits.stream_events_max)
        self.webhooks = by_source(webhooks)

    def leave(self) -> None:
        """Make `/readyz` fail, and end streams and waits."""
        self.service.leave()

    async def close(self) -> None:
        """End the streams and close the databases that were opened here. The caller closes the engine."""
        self.leave()
        self.ring.close()
        await self.databases.close()
