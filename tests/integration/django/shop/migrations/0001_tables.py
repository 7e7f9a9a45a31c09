"""First tables, before the shop knew delivery, stock and orders with lines."""

import uuid
from typing import ClassVar

from django.db import migrations, models

KEY = models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")
NARROW_KEY = models.AutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")


class Migration(migrations.Migration):
    initial = True
    operations: ClassVar = [
        migrations.CreateModel(
            name="Tag",
            fields=[("id", NARROW_KEY), ("name", models.SlugField(unique=True))],
            options={"ordering": ["name"]},
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", KEY),
                ("title", models.CharField(max_length=20)),
                ("code", models.UUIDField(default=uuid.uuid4, editable=False, unique=True)),
                ("price", models.DecimalField(max_digits=6, decimal_places=2)),
                ("weight", models.FloatField(null=True, blank=True)),
                ("picture", models.BinaryField(null=True)),
                ("details", models.JSONField(default=dict, blank=True)),
                ("discontinued", models.BooleanField(default=False)),
            ],
            options={"ordering": ["title"]},
        ),
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("id", KEY),
                ("email", models.EmailField(max_length=254, unique=True)),
                ("joined", models.DateField()),
            ],
        ),
        migrations.CreateModel(
            name="Order",
            fields=[
                ("id", KEY),
                ("placed", models.DateTimeField()),
                ("remark", models.CharField(max_length=100, null=True)),
                ("customer", models.ForeignKey(on_delete=models.CASCADE, related_name="orders", to="shop.customer")),
            ],
            options={"get_latest_by": "placed"},
        ),
    ]
