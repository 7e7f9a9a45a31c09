"""A day of the shop: what it writes and reads, as a list of results that must be the same on every database."""

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased, joinedload, selectinload

from tests.integration.sqlalchemy.shop import (
    Address,
    Category,
    Customer,
    Line,
    Method,
    Payment,
    Product,
    Purchase,
    Review,
    Status,
    Stock,
    Visit,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
TODAY = NOON.date()


def code(number: int) -> uuid.UUID:
    """An id that is the same in every run."""
    return uuid.UUID(int=number)


def morning(session: Session) -> Iterator[object]:
    """Fill the catalogue and the customers."""
    books, games = session.scalars(sa.select(Category).where(Category.name.in_(["games", "books"])).order_by("name"))
    session.add_all([Category(name="novels", parent_id=books.id), Category(name="puzzles", parent_id=games.id)])
    session.flush()
    tree = session.scalars(
        sa.select(Category)
        .where(Category.parent_id.is_(None))
        .order_by(Category.name)
        .options(selectinload(Category.children))
    )
    yield [(each.name, [child.name for child in each.children]) for each in tree]
    session.add_all(
        Product(
            code=code(number),
            name=f"Product {number:02}",
            price=Decimal(number) + Decimal("0.99"),
            released=date(2020, 1, 1) + timedelta(days=31 * number),
            labels=["new", f"l{number % 3}"] if number % 2 else [],
            attributes={"colour": ["red", "blue"][number % 2], "size": {"w": number, "h": None}},
            weight=number / 4,
            picture=bytes([number]) if number % 5 == 0 else None,
            categories=[books] if number % 2 else [books, games],
        )
        for number in range(1, 13)
    )
    session.add_all(
        Customer(
            email=f"{name}@example.org",
            name=name.title(),
            born=None if name == "eve" else date(1980, 5, len(name)),
            preferences={"news": name != "bob", "tags": [1, "two", None]},
            since=NOON - timedelta(days=len(name)),
            addresses=[Address(lines=[f"{name} street 1", "Backyard"], town="Lyon")],
        )
        for name in ("ann", "bob", "carol", "eve")
    )
    session.commit()
    yield session.scalar(sa.select(sa.func.count()).select_from(Product))
    rows = [
        {"page": f"/p/{n % 7}", "day": TODAY - timedelta(days=n % 4), "seconds": n / 8, "customer_id": n % 4 + 1}
        for n in range(500)
    ]
    session.execute(sa.insert(Visit), rows)
    session.commit()
    yield session.execute(
        sa.select(Visit.day, sa.func.count(), sa.func.sum(Visit.seconds), sa.func.avg(Visit.seconds))
        .group_by(Visit.day)
        .order_by(Visit.day)
    ).all()


def noon(session: Session) -> Iterator[object]:
    """Sell: purchases with lines, payments, stock by upserts, refused changes."""
    products = session.scalars(sa.select(Product).order_by(Product.name)).all()
    amounts = [{"product_id": each.id, "place": "north", "amount": 10} for each in products]
    for statement in (insert(Stock).values(amounts), insert(Stock).values(amounts[:3])):
        added = statement.on_conflict_do_update(
            index_elements=[Stock.product_id, Stock.place],
            set_={"amount": Stock.amount + statement.excluded.amount},
        ).returning(Stock.amount)
        yield sorted(session.scalars(added))
    yield session.scalars(insert(Stock).values(amounts).on_conflict_do_nothing().returning(Stock.amount)).all()
    session.commit()
    customers = session.scalars(sa.select(Customer).order_by(Customer.email)).all()
    for number, customer in enumerate(customers):
        purchase = Purchase(
            number=f"P-{number:04}",
            customer=customer,
            at=NOON + timedelta(minutes=number),
            deliver_on=TODAY + timedelta(days=number),
            patience=timedelta(days=number, hours=1, microseconds=5),
            lines=[
                Line(place=place, product=products[(number + place) % 12], quantity=place, price=Decimal("2.50"))
                for place in range(1, 4)
            ],
        )
        session.add(purchase)
        purchase.payments.append(
            Payment(id=code(number), method=Method.CARD, amount=Decimal("15.00"), received=NOON.replace(tzinfo=None))
        )
    session.commit()
    yield session.execute(
        sa.select(Purchase.number, sa.func.sum(Line.quantity * Line.price).label("total"))
        .join(Purchase.lines)
        .group_by(Purchase.number)
        .having(sa.func.sum(Line.quantity) > 1)
        .order_by(Purchase.number)
    ).all()
    try:
        with session.begin_nested():
            session.add(Line(purchase_id=1, place=9, product_id=products[0].id, quantity=0, price=Decimal(1)))
            session.flush()
    except IntegrityError as error:
        yield type(error).__name__
    with session.begin_nested():
        first = session.scalars(sa.select(Purchase).order_by(Purchase.number).limit(1)).one()
        first.status = Status.PAID
    session.commit()
    yield session.execute(sa.select(Purchase.number, Purchase.status).order_by(Purchase.number)).all()
    paid = (
        sa.update(Purchase).where(Purchase.status == Status.PAID).values(status=Status.SENT).returning(Purchase.number)
    )
    yield session.scalars(paid).all()
    session.execute(sa.update(Customer), [{"id": each.id, "visits": each.id * 2} for each in customers])
    session.commit()
    yield session.execute(sa.select(Customer.email, Customer.visits).order_by(Customer.email)).all()


def evening(session: Session) -> Iterator[object]:
    """Look at everything: joins, documents, arrays, windows, subqueries; then tidy up."""
    loaded = session.scalars(
        sa.select(Purchase)
        .options(joinedload(Purchase.customer), selectinload(Purchase.lines).joinedload(Line.product))
        .order_by(Purchase.at.desc())
    ).all()
    yield [
        (each.number, each.customer.name, each.patience, each.deliver_on, [line.product.name for line in each.lines])
        for each in loaded
    ]
    yield session.scalars(sa.select(Product.name).where(Product.labels.any_() == "l1").order_by(Product.name)).all()
    yield session.scalars(
        sa.select(Product.name).where(Product.attributes["colour"].as_string() == "red").order_by(Product.name)
    ).all()
    yield session.scalars(
        sa.select(Product.name).where(Product.attributes.contains({"size": {"w": 3}})).order_by(Product.name)
    ).all()
    rank = sa.func.rank().over(partition_by=sa.extract("year", Product.released), order_by=Product.price.desc())
    yield session.execute(sa.select(Product.name, rank).order_by(Product.name)).all()
    bought = sa.exists().where(Line.product_id == Product.id)
    yield session.scalars(sa.select(Product.name).where(~bought).order_by(Product.name)).all()
    other = aliased(Category)
    yield session.execute(
        sa.select(Category.name, other.name).outerjoin(other, Category.parent_id == other.id).order_by(Category.name)
    ).all()
    yield session.execute(
        sa.select(Product.name, sa.func.count(Category.id))
        .outerjoin(Product.categories)
        .group_by(Product.name)
        .order_by(sa.func.count(Category.id).desc(), Product.name)
        .limit(5)
        .offset(1)
    ).all()
    product, customer = loaded[0].lines[0].product, loaded[0].customer
    session.add(Review(product_id=product.id, customer_id=customer.id, stars=4))
    session.commit()
    again = Review(product_id=product.id, customer_id=customer.id, stars=5)
    session.add(again)
    try:
        session.commit()
    except IntegrityError as error:
        session.rollback()
        yield type(error).__name__
    yield session.execute(sa.select(Review.stars, Review.text)).all()
    removed = session.execute(sa.delete(Visit).where(Visit.day < TODAY - timedelta(days=1)))
    yield cast("sa.CursorResult[Any]", removed).rowcount
    product.categories.clear()
    session.delete(session.scalars(sa.select(Customer).where(Customer.email.like("ann@%"))).one().addresses[0])
    session.delete(session.scalars(sa.select(Purchase).where(Purchase.number == "P-0003")).one())
    session.commit()
    yield [
        session.scalar(sa.select(sa.func.count()).select_from(table))
        for table in (Address, Purchase, Line, Payment, Visit, Product, Stock)
    ]
    yield session.execute(sa.select(Customer.name, Customer.preferences, Customer.since).order_by(Customer.name)).all()
