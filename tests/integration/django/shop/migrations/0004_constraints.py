"""Indexes and constraints on tables with rows, and a wider key with the columns that refer to it."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("shop", "0003_lines")]
    operations: ClassVar = [
        migrations.AddIndex("product", models.Index(fields=["-price", "name"], name="product_prices")),
        migrations.RenameIndex("product", new_name="product_by_price", old_name="product_prices"),
        migrations.AddConstraint(
            "product", models.CheckConstraint(condition=models.Q(price__gte=0), name="product_price_not_negative")
        ),
        migrations.AddConstraint(
            "product",
            models.UniqueConstraint(fields=["name"], condition=models.Q(stock__gt=0), name="product_name_in_stock"),
        ),
        migrations.AddConstraint("line", models.UniqueConstraint(fields=["order", "product"], name="line_of_product")),
        migrations.AlterField(
            "tag",
            "id",
            models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"),
        ),
    ]
