"""Commands of the shop: each returns what the application saw, to be compared between engines."""

import datetime
import io
import tempfile
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.db import IntegrityError, connection, models, transaction
from django.db.models import Avg, Case, Count, Exists, F, Max, OuterRef, Q, Subquery, Sum, Value, When, Window
from django.db.models.functions import Coalesce, Concat, ExtractYear, Lower, RowNumber, TruncDay, TruncMonth
from django.test import Client
from django.test.utils import setup_test_environment
from django.urls import reverse

from tests.integration.django.shop.models import Customer, Line, Order, Product, Tag

UTC = datetime.UTC
PASSWORD = "of a test"


def code(number: int) -> uuid.UUID:
    return uuid.UUID(int=number)


def add_rows() -> None:
    tags = Tag.objects.bulk_create([Tag(name=name) for name in ("home", "light", "wood")])
    lamp = Product.objects.create(
        name="Lamp",
        code=code(10),
        price=Decimal("19.90"),
        weight=1.25,
        picture=b"\x00\xff",
        details={"watts": 8, "colours": ["red", "blü"], "nested": {"a": None, "b": [1, 2.5, True]}},
        delivery=datetime.timedelta(days=1, hours=3, microseconds=5),
        opens=datetime.time(9, 30),
        sizes=["S", "XL", 'a"b\\'],
        stock=5,
    )
    lamp.tags.set(tags[:2])
    chair = Product.objects.create(name="Chair", code=code(11), price=Decimal(80), stock=2, details=[1, "two"])
    chair.tags.add(tags[2], tags[0])
    Product.objects.create(name="Under 100% _x", code=code(12), price=Decimal("0.5"), details="text")
    for number in range(3):
        customer = Customer.objects.create(email=f"c{number}@shop.test", joined=datetime.date(2025, 1 + number, 28))
        for month in range(1, 3 + number):
            placed = datetime.datetime(2025, month, 28, 23, 30, 0, number * 1000, tzinfo=UTC)
            order = Order.objects.create(customer=customer, placed=placed, remark=f"r{month}")
            Line.objects.create(order=order, product=lamp, quantity=month)
            if month > 1:
                Line.objects.create(order=order, product=chair)


def refusal(function: Callable[[], object]) -> str:
    try:
        with transaction.atomic():
            function()
    except (IntegrityError, models.ProtectedError) as error:
        return type(error).__name__
    return "none"


def schema() -> dict[str, object]:
    """Make the schema of the address, on PostgreSQL."""
    with connection.cursor() as cursor:
        cursor.execute("SHOW search_path")
        cursor.execute(f"CREATE SCHEMA {cursor.fetchone()[0]}")
    return {}


def use() -> dict[str, object]:
    """Use the models, one feature after the other."""
    add_rows()
    lamp, chair = Product.objects.get(name="Lamp"), Product.objects.get(name="Chair")
    seen: dict[str, object] = {"lamp": values(Product.objects.filter(pk=lamp.pk)), "ids": [lamp.pk, chair.pk]}
    seen["lookups"] = {
        name: list(Product.objects.filter(query).order_by("code").values_list("name", flat=True))
        for name, query in {
            "contains": Q(name__contains="% _"),
            "icontains": Q(name__icontains="UNDER"),
            "regex": Q(name__regex="^[LC]"),
            "in": Q(price__in=[Decimal(80), Decimal("0.50")]),
            "range": Q(price__range=(1, 50)),
            "isnull": Q(weight__isnull=True),
            "json": Q(details__watts=8),
            "json_deep": Q(details__nested__b__1__gt=2),
            "json_contains": Q(details__contains={"watts": 8}),
            "json_key": Q(details__has_key="colours"),
            "json_null": Q(details__nested__a=None),
            "array": Q(sizes__contains=["XL"]),
            "array_len": Q(sizes__len=3),
            "duration": Q(delivery__gt=datetime.timedelta(days=1, hours=12)),
            "time": Q(opens__hour=9),
            "m2m": Q(tags__name="home"),
            "uuid": Q(code=code(11)),
            "or_not": Q(stock=5) | ~Q(stock__gte=1),
            "f": Q(stock__lt=F("price")),
        }.items()
    }
    return seen | query() | {"changed": change(lamp, chair)}


def query() -> dict[str, object]:
    """Read with joins, groups, windows and expressions."""
    seen: dict[str, object] = {}
    seen["joins"] = list(
        Line.objects.filter(product__tags__name="home", order__customer__email__startswith="c1")
        .select_related("order__customer", "product")
        .order_by("order__placed", "product__name")
        .values_list("order__customer__email", "product__name", "quantity")
    )
    seen["prefetch"] = [
        [product.name, [tag.name for tag in product.tags.all()]]
        for product in Product.objects.prefetch_related("tags").order_by("code")
    ]
    seen["aggregates"] = Line.objects.aggregate(
        Sum("quantity"), Avg("product__price"), Max("order__placed"), dear=Count("pk", filter=Q(product__price__gt=50))
    )
    seen["groups"] = list(
        Order.objects.annotate(month=TruncMonth("placed"), year=ExtractYear("placed"))
        .values("month", "year")
        .annotate(total=Sum(F("lines__quantity") * F("lines__product__price")), orders=Count("pk", distinct=True))
        .order_by("month")
    )
    seen["days"] = list(Order.objects.annotate(day=TruncDay("placed")).order_by("pk").values_list("day", flat=True))
    newest = Order.objects.filter(customer=OuterRef("pk")).order_by("-placed").values("placed")[:1]
    seen["subqueries"] = list(
        Customer.objects.annotate(
            last=Subquery(newest), many=Exists(Order.objects.filter(customer=OuterRef("pk"), pk__gt=3))
        )
        .order_by("email")
        .values_list("email", "last", "many")
    )
    seen["windows"] = list(
        Line.objects.annotate(row=Window(RowNumber(), partition_by="product", order_by=["-quantity", "pk"]))
        .order_by("product", "row")
        .values_list("product__name", "row", "quantity")
    )
    seen["expressions"] = list(
        Product.objects.annotate(
            label=Concat(Lower("name"), Value(": "), "price", output_field=models.TextField()),
            band=Case(When(price__gt=50, then=Value("dear")), default=Value("cheap")),
            heavy=Coalesce("weight", Value(0.0)),
        )
        .order_by("-price")
        .values_list("label", "band", "heavy")
    )
    seen["union"] = list(
        Tag.objects.values_list("name").union(Customer.objects.values_list("email")).order_by("name")[:4]
    )
    return seen


def change(lamp: Product, chair: Product) -> dict[str, object]:
    """Change rows; return the results, and the errors of constraints."""
    made = {
        "update": Product.objects.filter(stock__gt=0).update(stock=F("stock") + 1, price=F("price") * 2),
        "get_or_create": [Tag.objects.get_or_create(name=name)[1] for name in ("wood", "new")],
        "update_or_create": Customer.objects.update_or_create(
            email="c0@shop.test", defaults={"joined": datetime.date(2026, 1, 1)}
        )[1],
        "bulk_update": Product.objects.bulk_update(Product.objects.all(), ["price", "details"]),
    }
    Tag.objects.bulk_create([Tag(name="wood"), Tag(name="steel")], ignore_conflicts=True)
    Customer.objects.bulk_create(
        [Customer(email=f"c{number}@shop.test", joined=datetime.date(2027, 1, 1)) for number in range(2, 5)],
        update_conflicts=True,
        unique_fields=["email"],
        update_fields=["joined"],
    )
    made |= {
        "unique": refusal(lambda: Tag.objects.create(name="wood")),
        "check": refusal(lambda: Product.objects.create(name="bad", price=-1)),
        "partial": refusal(lambda: Product.objects.create(name="Lamp", price=1, stock=1)),
        "positive": refusal(lambda: Product.objects.filter(pk=lamp.pk).update(stock=-1)),
        "foreign": refusal(lambda: Line.objects.create(order_id=1, product_id=999_999)),
        "protected": refusal(chair.delete),
    }
    with transaction.atomic():
        held = Product.objects.select_for_update().get(pk=lamp.pk)
        held.stock -= 1
        held.save(update_fields=["stock"])
        outside = transaction.savepoint()
        Product.objects.all().update(stock=0)
        transaction.savepoint_rollback(outside)
    made["deleted"] = Customer.objects.get(email="c1@shop.test").delete()
    made["iterated"] = sum(line.quantity for line in Line.objects.iterator(chunk_size=2))
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM shop_tag WHERE name LIKE 'w%%' AND name <> %s", ["x"])
        made["raw"] = cursor.fetchall()
    return made


def admin() -> dict[str, object]:
    """Log in to the admin; list, search, add, change and delete."""
    setup_test_environment()  # Responses keep their context.
    User.objects.create_superuser("ada", "ada@shop.test", PASSWORD)
    client = Client()
    seen: dict[str, object] = {"anonymous": client.get(reverse("admin:index")).status_code}
    seen["login"] = client.login(username="ada", password=PASSWORD)
    seen["pages"] = [
        client.get(reverse(f"admin:{name}")).status_code
        for name in ("index", "shop_order_changelist", "shop_product_changelist", "auth_user_changelist")
    ]
    form = {"name": "Shelf", "price": "12.00", "details": "{}", "delivery": "2 00:00:00", "sizes": "S,M", "stock": "1"}
    tag = Tag.objects.get(name="wood")
    added = client.post(reverse("admin:shop_product_add"), form | {"tags": [tag.pk]})
    shelf = Product.objects.get(name="Shelf")
    page = reverse("admin:shop_product_change", args=[shelf.pk])
    seen["added"] = [added.status_code, client.get(page).status_code, [each.name for each in shelf.tags.all()]]
    seen["refused"] = client.post(page, form | {"price": "dear"}).status_code
    seen["changed"] = client.post(page, form | {"price": "13.50"}).status_code
    seen["price"] = str(Product.objects.get(pk=shelf.pk).price)
    found = client.get(reverse("admin:shop_product_changelist"), {"q": "wood"})
    seen["search"] = [product.name for product in found.context["cl"].queryset]
    month = client.get(reverse("admin:shop_order_changelist"), {"placed__year": "2025", "placed__month": "3"})
    seen["hierarchy"] = month.context["cl"].result_count
    seen["history"] = client.get(reverse("admin:shop_product_history", args=[shelf.pk])).status_code
    delete = reverse("admin:shop_product_delete", args=[shelf.pk])
    seen["deleted"] = [client.get(delete).status_code, client.post(delete, {"post": "yes"}).status_code]
    seen["left"] = Product.objects.filter(name="Shelf").count()
    limited = User.objects.create_user("bob", password=PASSWORD, is_staff=True)
    limited.user_permissions.add(Permission.objects.get(codename="view_tag"))
    client.logout()
    client.force_login(limited)
    names = ("shop_tag_changelist", "shop_product_changelist")
    seen["permissions"] = [client.get(reverse(f"admin:{name}")).status_code for name in names]
    return seen


def state() -> dict[str, list[dict[str, Any]]]:
    """Return every row of the shop."""
    return {model.__name__: values(model.objects.order_by("pk")) for model in (Tag, Product, Customer, Order, Line)}


def commands() -> dict[str, object]:
    """Dump, flush, load; describe the tables."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "rows.json")
        call_command("dumpdata", "shop", output=str(file), verbosity=0)
        before = state()
        call_command("flush", interactive=False, verbosity=0)
        empty = [model.objects.count() for model in (Tag, Product, Line)]
        first = Tag.objects.create(name="first").pk
        Tag.objects.all().delete()
        call_command("loaddata", str(file), verbosity=0)
    inspected, checked = io.StringIO(), io.StringIO()
    call_command("inspectdb", "shop_product", "shop_line", stdout=inspected)
    call_command("check", stdout=checked)
    return {
        "empty": empty,
        "first": first,
        "same": state() == before,
        "second": Tag.objects.create(name="second").pk == max(row["id"] for row in before["Tag"]) + 1,
        "inspected": inspected.getvalue().splitlines(),
        "checked": checked.getvalue(),
    }


def values(rows: models.QuerySet) -> list[dict[str, Any]]:
    return [
        {name: bytes(value).hex() if isinstance(value, bytes | memoryview) else value for name, value in row.items()}
        for row in rows.values()
    ]


COMMANDS = {"schema": schema, "use": use, "admin": admin, "state": state, "commands": commands}
