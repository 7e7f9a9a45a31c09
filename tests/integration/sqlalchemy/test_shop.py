"""An application with SQLAlchemy and Alembic runs on a lane as on PostgreSQL, and moves there with one setting."""

import asyncio
import contextlib
import enum
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.dialects.postgresql.base import PGInspector
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from interlock.cli.program import main
from interlock.urls import parse_postgres_url
from tests.integration.sqlalchemy.shop import Base
from tests.integration.sqlalchemy.traffic import evening, morning, noon

MIGRATIONS = Path(__file__).parent / "migrations"
PARTS = (morning, noon, evening)
STATEMENTS = 60
"""At least so many different statements are compared; executions are many more."""

TRANSACTION_S = 600.0
"""A migration is one transaction, and how long it takes says something about the machine."""

registry.register("interlock.lanes", "interlock.dbapi.sqlalchemy_dialect", "LaneDialect")


@pytest.fixture
def lane(tmp_path: Path) -> str:
    return f"interlock+lanes://{tmp_path}/shop"


def on_postgres(url: str) -> str:
    """The address of the same schema for SQLAlchemy's own dialect of PostgreSQL."""
    parts = urlsplit(parse_postgres_url(url).url)
    schema, host = parse_postgres_url(url).schema, parse_qs(parts.query).get("host", [""])[0]
    query = f"options=-csearch_path%3D{schema}%20-cTimeZone%3DUTC" + (f"&host={host}" if host else "")
    return f"postgresql+psycopg://{parts.netloc}{parts.path}?{query}"


def with_patience(url: str) -> str:
    """The address with a transaction limit that no machine reaches, if it is one of a lane."""
    return f"{url}?transaction_timeout_s={TRANSACTION_S}" if url.startswith("interlock+") else url


@contextlib.contextmanager
def engine_of(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(with_patience(url))
    try:
        yield engine
    finally:
        engine.dispose()


def migrate(engine: sa.Engine, change: Callable[..., None], revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        change(config, revision)


def make_schema(postgres_url: str) -> None:
    with engine_of(on_postgres(postgres_url)) as engine, engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema(parse_postgres_url(postgres_url).schema))


def differences(engine: sa.Engine) -> list[object]:
    """What Alembic's autogenerate would change."""
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_name": is_ours})
        return list(compare_metadata(context, Base.metadata))


def is_ours(name: str | None, _kind: str, _parents: object) -> bool:
    """Whether a table is the application's: on PostgreSQL a move leaves tables of Interlock beside them."""
    return not (name or "").startswith("interlock_")


def run(engine: sa.Engine, *parts: Callable[[Session], Iterator[object]]) -> list[object]:
    with Session(engine) as session:
        return [result for part in parts for result in part(session)]


def test_the_whole_application_gives_the_same_results(lane: str, postgres_url: str) -> None:
    make_schema(postgres_url)
    statements: set[str] = set()
    executed = 0

    def count(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        nonlocal executed
        executed += 1
        statements.add(statement)

    with engine_of(lane) as engine, engine_of(on_postgres(postgres_url)) as other:
        sa.event.listen(engine, "before_cursor_execute", count)
        migrate(engine, command.upgrade, "head")
        migrate(other, command.upgrade, "head")
        assert differences(engine) == differences(other) == []
        for here, there in zip(run(engine, *PARTS), run(other, *PARTS), strict=True):
            assert here == there
        assert len(statements) >= STATEMENTS, executed


class Mood(enum.Enum):
    SAD = "sad"
    HAPPY = "happy"


def feelings() -> tuple[sa.MetaData, sa.Table]:
    """A table with an enumeration of the database, and a computed column."""
    metadata = sa.MetaData()
    table = sa.Table(
        "feeling",
        metadata,
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("mood", sa.Enum(Mood, name="mood"), nullable=False, server_default="SAD"),
        sa.Column("moods", ARRAY(sa.Enum(Mood, name="mood"))),
        sa.Column("minutes", sa.Integer),
        sa.Column("hours", sa.Integer, sa.Computed("minutes / 60", persisted=True)),
    )
    return metadata, table


def feel(engine: sa.Engine) -> list[object]:
    """Create, fill, change, read, reflect and drop the table."""
    metadata, table = feelings()
    metadata.create_all(engine)
    metadata.create_all(engine)
    results: list[object] = []
    with engine.begin() as connection:
        added = table.insert().returning(table.c.id, table.c.mood, table.c.hours, sort_by_parameter_order=True)
        rows: list[dict[str, object]] = [
            {"mood": Mood.HAPPY, "moods": [Mood.SAD, Mood.HAPPY], "minutes": 130},
            {"mood": Mood.SAD, "moods": [], "minutes": 1},
        ]
        results.append([tuple(row) for row in connection.execute(added, rows)])
        connection.execute(table.insert().values(minutes=59))
        connection.execute(table.update().where(table.c.mood == Mood.SAD).values(minutes=table.c.minutes + 61))
        ordered = table.select().order_by(table.c.mood.desc(), table.c.id)
        results.append([tuple(row) for row in connection.execute(ordered)])
        counted = sa.select(table.c.mood, sa.func.count()).where(table.c.mood.in_(Mood)).group_by(table.c.mood)
        results.append(sorted((mood.name, count) for mood, count in connection.execute(counted)))
    inspector = sa.inspect(engine)
    results += [repr(column["type"]) for column in inspector.get_columns("feeling")]
    enums = cast("PGInspector", inspector).get_enums()
    results.append([(each["name"], each["labels"]) for each in enums])
    metadata.drop_all(engine)
    results.append(sa.inspect(engine).get_table_names())
    return results


def test_enumerations_and_computed_columns_are_those_of_postgresql(lane: str, postgres_url: str) -> None:
    make_schema(postgres_url)
    with engine_of(lane) as engine, engine_of(on_postgres(postgres_url)) as other:
        assert feel(engine) == feel(other)


def test_migrations_go_down_and_up_again_with_rows(lane: str) -> None:
    with engine_of(lane) as engine:
        migrate(engine, command.upgrade, "head")
        before = run(engine, morning)
        migrate(engine, command.downgrade, "0003")
        assert differences(engine) != []
        with engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT count(city) FROM address")) == 4
        migrate(engine, command.upgrade, "head")
        assert differences(engine) == []
        assert before[1] == 12
        migrate(engine, command.downgrade, "base")
        assert sa.inspect(engine).get_table_names() == ["alembic_version"]


def test_a_migration_that_fails_leaves_nothing(lane: str) -> None:
    with engine_of(lane) as engine:
        migrate(engine, command.upgrade, "0003")
        with engine.begin() as connection:
            connection.execute(
                sa.insert(Base.metadata.tables["product"]).values(
                    code=uuid.uuid4(), name="x", price=-1, weight=1, labels=[], attributes={}, is_active=True
                )
            )
        with pytest.raises(sa.exc.IntegrityError):
            migrate(engine, command.upgrade, "head")
        with engine.connect() as connection:
            assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "0003"
            assert connection.scalar(sa.text("SELECT count(city) FROM address")) == 0


def test_the_application_moves_to_postgresql_with_one_setting(lane: str, postgres_url: str, tmp_path: Path) -> None:
    with engine_of(lane) as engine:
        migrate(engine, command.upgrade, "head")
        _ = run(engine, morning)
    with engine_of(f"interlock+lanes://{tmp_path}/stays") as engine:
        migrate(engine, command.upgrade, "head")
        expected = run(engine, morning, noon, evening)
    assert main(["route", lane.removeprefix("interlock+"), "--to", postgres_url]) == 0
    with engine_of(on_postgres(postgres_url)) as engine:
        assert differences(engine) == []
        moved = run(engine, noon, evening)
        assert moved == expected[len(expected) - len(moved) :]
    with engine_of(lane) as engine, engine.connect() as connection:  # The old address follows the move.
        found = connection.execute(sa.text("SELECT count(*) FROM purchase")).scalar()
        assert found == 3


def test_the_application_runs_in_an_event_loop(lane: str, tmp_path: Path) -> None:
    with engine_of(f"interlock+lanes://{tmp_path}/other") as engine:
        migrate(engine, command.upgrade, "head")
        expected = run(engine, *PARTS)

    async def scenario() -> list[object]:
        engine = create_async_engine(with_patience(lane))
        try:
            async with engine.begin() as connection:
                config = Config()
                config.set_main_option("script_location", str(MIGRATIONS))
                config.set_main_option("path_separator", "os")

                def upgrade(given: sa.Connection) -> None:
                    config.attributes["connection"] = given
                    command.upgrade(config, "head")

                await connection.run_sync(upgrade)
            async with AsyncSession(engine) as session:
                return await session.run_sync(lambda given: [each for part in PARTS for each in part(given)])
        finally:
            await engine.dispose()

    assert asyncio.run(scenario()) == expected
