"""Rows of the first tables, which the later migrations change."""

from typing import ClassVar

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def add_rows(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    del editor
    product, tag = apps.get_model("shop", "Product"), apps.get_model("shop", "Tag")
    product.objects.create(title="old lamp", code="00000000-0000-0000-0000-000000000001", price="9.90")
    product.objects.create(title="old chair", code="00000000-0000-0000-0000-000000000002", price="100", weight=4.5)
    tag.objects.bulk_create([tag(name="old"), tag(name="sale")])


class Migration(migrations.Migration):
    dependencies: ClassVar = [("shop", "0001_tables")]
    operations: ClassVar = [migrations.RunPython(add_rows, migrations.RunPython.noop)]
