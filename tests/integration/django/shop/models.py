"""Models of a shop: every kind of field, constraints, indexes, many-to-many."""

import uuid
from datetime import timedelta
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models


class Tag(models.Model):
    name = models.SlugField(unique=True)

    class Meta:
        ordering: ClassVar = ["name"]

    def __str__(self) -> str:
        return str(self.name)


class Product(models.Model):
    name = models.CharField(max_length=40)
    code = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    weight = models.FloatField(null=True, blank=True)
    picture = models.BinaryField(null=True)
    details = models.JSONField(default=dict, blank=True)
    delivery = models.DurationField(default=timedelta(days=2))
    opens = models.TimeField(null=True, blank=True)
    sizes = ArrayField(models.TextField(), default=list, blank=True)
    stock = models.PositiveIntegerField(default=0)
    tags = models.ManyToManyField(Tag, blank=True, related_name="products")

    class Meta:
        ordering: ClassVar = ["name"]
        indexes: ClassVar = [models.Index(fields=["-price", "name"], name="product_by_price")]
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(price__gte=0), name="product_price_not_negative"),
            models.UniqueConstraint(fields=["name"], condition=models.Q(stock__gt=0), name="product_name_in_stock"),
        ]

    def __str__(self) -> str:
        return str(self.name)


class Customer(models.Model):
    email = models.EmailField(unique=True)
    joined = models.DateField()
    is_active = models.BooleanField(default=True)

    def __str__(self) -> str:
        return str(self.email)


class Order(models.Model):
    customer = models.ForeignKey(Customer, on_delete=models.CASCADE, related_name="orders")
    placed = models.DateTimeField(db_index=True)
    remark = models.TextField(blank=True)
    products = models.ManyToManyField(Product, through="Line")

    class Meta:
        get_latest_by = "placed"

    def __str__(self) -> str:
        return f"{self.customer} at {self.placed}"


class Line(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveSmallIntegerField(default=1)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["order", "product"], name="line_of_product")]

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"
