"""Trial of indexes and constraints at PostgreSQL before any row is copied.

A lane takes a few definitions that PostgreSQL does not, such as an index whose condition looks at the year of a moment,
which depends on a time zone there. The server itself is asked, on empty tables, and everything is taken back.
"""

from interlock.database.moving.findings import Findings
from interlock.database.moving.shape import Shape
from interlock.errors import DialectError, TransactionError
from interlock.sql.postgres.client import said
from interlock.sql.postgres.link import Link


async def refuse_untaken(link: Link, schema: str, shape: Shape) -> None:
    """Raise DialectError with everything that the server refuses to create.

    Inside the caller's transaction, in which the tables were just created.
    """
    findings = Findings()
    with said(writing=False):
        await link.driver.execute("SAVEPOINT interlock_offered")
    for table in shape.tables:
        for sql in (*table.after(schema), *table.last(schema)):
            await _offer(link, f"the table {table.name}, {sql}", sql, findings)
    with said(writing=False):
        await link.driver.execute("ROLLBACK TO SAVEPOINT interlock_offered")
    findings.settle("the database")


async def _offer(link: Link, where: str, sql: str, findings: Findings) -> None:
    with said(writing=False):
        await link.driver.execute("SAVEPOINT interlock_one")
    try:
        with said(writing=False):
            await link.driver.execute(sql)
    except (DialectError, TransactionError) as error:
        findings.refused(where, error)
        with said(writing=False):
            await link.driver.execute("ROLLBACK TO SAVEPOINT interlock_one")
