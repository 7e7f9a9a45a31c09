"""Added, altered, renamed and removed fields; lines, indexes and constraints; changed rows."""

import datetime
from typing import ClassVar

import django.contrib.postgres.fields
from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor

KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


def tag_rows(apps: Apps, editor: BaseDatabaseSchemaEditor) -> None:
    del editor
    tag = apps.get_model("shop", "Tag").objects.get(name="old")
    for product in apps.get_model("shop", "Product").objects.filter(name__startswith="old"):
        product.tags.add(tag)
        product.stock = len(product.name)
        product.save()


class Migration(migrations.Migration):
    dependencies: ClassVar = [("shop", "0002_rows")]
    operations: ClassVar = [
        migrations.RenameField("product", "title", "name"),
        migrations.AlterModelOptions("product", {"ordering": ["name"]}),
        migrations.AlterField("product", "name", models.CharField(max_length=40)),
        migrations.AlterField("product", "price", models.DecimalField(max_digits=8, decimal_places=2)),
        migrations.RemoveField("product", "discontinued"),
        migrations.AddField("product", "delivery", models.DurationField(default=datetime.timedelta(days=2))),
        migrations.AddField("product", "opens", models.TimeField(null=True, blank=True)),
        migrations.AddField(
            "product",
            "sizes",
            django.contrib.postgres.fields.ArrayField(
                base_field=models.TextField(), blank=True, default=list, size=None
            ),
        ),
        migrations.AddField("product", "stock", models.PositiveIntegerField(default=0)),
        migrations.AddField("customer", "is_active", models.BooleanField(default=True)),
        migrations.AlterField("order", "placed", models.DateTimeField(db_index=True)),
        migrations.AlterField("order", "remark", models.TextField(blank=True, default="")),
        migrations.AlterField("order", "remark", models.TextField(blank=True)),
        migrations.CreateModel(
            name="Line",
            fields=[
                ("id", KEY),
                ("quantity", models.PositiveSmallIntegerField(default=1)),
                ("order", models.ForeignKey(on_delete=models.CASCADE, related_name="lines", to="shop.order")),
                ("product", models.ForeignKey(on_delete=models.PROTECT, to="shop.product")),
            ],
        ),
        migrations.AddField("order", "products", models.ManyToManyField(through="shop.Line", to="shop.product")),
        migrations.AddField(
            "product", "tags", models.ManyToManyField(blank=True, related_name="products", to="shop.tag")
        ),
        migrations.RunPython(tag_rows, migrations.RunPython.noop),
    ]
