"""The `/metrics` route for Prometheus: the metrics of the engine's exporter.

`interlock serve` has an exporter when the extra is installed; each worker reports the metrics of all workers. A mounted
app has one when its engine was opened with `observers=["prometheus"]`; otherwise this route answers 501.
"""

from interlock.server.answers import Answer
from interlock.server.problems import HttpProblem
from interlock.server.requests import Request
from interlock.server.service import Service


async def metrics(service: Service, request: Request) -> Answer:
    """Return all metrics as text."""
    del request
    scraped = await service.scraped()
    if scraped is None:
        raise HttpProblem(
            501,
            "this engine has no Prometheus exporter.",
            code="no-metrics",
            why="It was opened without the observer, or prometheus-client is not installed.",
            fix="Install it: pip install 'interlock[otel]'. Then `interlock serve` has it; an engine of your own is "
            'opened with observers=["prometheus"].',
        )
    content_type, body = scraped
    return Answer(200, body, ((b"content-type", content_type.encode()),))
