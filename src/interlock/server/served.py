"""Everything that one app serves: the engine, its databases, the ring of signals, the webhooks."""

from collections.abc import Mapping, Sequence

from interlock.database.database import Database
from interlock.server.databases import Databases
from interlock.server.service import Service
from interlock.server.stream import Ring
from interlock.server.webhooks import Webhook, by_source


class Served:
    """What handlers are given."""

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
        """Answer at `/readyz` that the server stops, and end streams and waits."""
        self.service.leave()

    async def close(self) -> None:
        """End everything that was begun here. The engine is not ours."""
        self.leave()
        self.ring.close()
        await self.databases.close()
