"""`/metrics`, for Prometheus: what the engine's own exporter has counted.

`interlock serve` has one when its extra is installed; of several workers any one tells the figures of all. An app that
is mounted has one when its engine was opened with `observers=["prometheus"]`; without it this answers 501, and says so.
"""

from interlock.server.answers import Answer
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request
from interlock.server.service import Service


async def metrics(service: Service, request: Request) -> Answer:
    """Everything that is counted, as text."""
    del request
    scraped = await service.scraped()
    if scraped is None:
        raise HttpProblem(
            501,
            "this engine counts nothing for Prometheus.",
            code="no-metrics",
            why="It was opened without the observer, or prometheus-client is not installed.",
            fix="Install it: pip install 'interlock[otel]'. Then `interlock serve` has it; an engine of your own is "
            'opened with observers=["prometheus"].',
        )
    content_type, body = scraped
    return Answer(200, body, ((b"content-type", content_type.encode()),))
