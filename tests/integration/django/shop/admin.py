"""The shop in Django's admin."""

from typing import ClassVar

from django.contrib import admin

from tests.integration.django.shop.models import Customer, Line, Order, Product, Tag


class LineInline(admin.TabularInline):
    model = Line
    extra = 0


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display: ClassVar = ["name", "price", "stock"]
    list_filter: ClassVar = ["tags"]
    search_fields: ClassVar = ["name", "tags__name"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    date_hierarchy = "placed"
    inlines: ClassVar = [LineInline]
    list_display: ClassVar = ["customer", "placed"]
    list_select_related: ClassVar = ["customer"]


admin.site.register([Customer, Tag])
