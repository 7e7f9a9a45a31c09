"""Tests of the application, run by Django's test runner."""

import threading

from asgiref.sync import async_to_sync
from django.db import connection, connections, transaction
from django.test import TestCase, TransactionTestCase

from interlock.database.transactions import Transaction
from tests.integration.django.shop.models import Tag


class TagTests(TestCase):
    @classmethod
    def setUpTestData(cls) -> None:
        Tag.objects.create(name="first")

    def test_a_test_begins_with_the_rows_of_its_class(self) -> None:
        Tag.objects.create(name="second")
        assert Tag.objects.count() == 4

    def test_and_leaves_none(self) -> None:
        assert Tag.objects.count() == 3

    def test_many_rows_are_created_and_read_in_batches(self) -> None:
        made = Tag.objects.bulk_create([Tag(name=f"n{number}") for number in range(1_700)])
        assert len({tag.pk for tag in made}) == 1_700
        assert len(Tag.objects.in_bulk([tag.pk for tag in made])) == 1_700
        assert Tag.objects.filter(name__startswith="n").delete()[0] == 1_700


class ThreadTests(TransactionTestCase):
    def test_threads_share_the_lane_and_take_turns_in_atomic(self) -> None:
        counter = Tag.objects.create(name="0")

        def count() -> None:
            for _ in range(10):
                with transaction.atomic():
                    tag = Tag.objects.select_for_update().get(pk=counter.pk)
                    tag.name = str(int(tag.name) + 1)
                    tag.save()
            connection.close()

        threads = [threading.Thread(target=count) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        counter.refresh_from_db()
        assert counter.name == "30"

    def test_a_reader_does_not_wait_for_an_open_transaction(self) -> None:
        before = Tag.objects.count()
        seen: list[int] = []

        def read() -> None:
            seen.append(Tag.objects.count())
            connections.close_all()

        with transaction.atomic():
            Tag.objects.create(name="of the open transaction")
            reader = threading.Thread(target=read)
            reader.start()
            reader.join(timeout=30)
        assert seen == [before]

    def test_a_function_given_to_transact_runs_in_the_writer(self) -> None:
        tag = Tag.objects.create(name="before")

        async def rename(tx: Transaction, key: int, name: str) -> str:
            await tx.execute("UPDATE shop_tag SET name = $2 WHERE id = $1", key, name)
            return str((await tx.query("SELECT name FROM shop_tag WHERE id = $1", key))[0].name)

        connection.ensure_connection()
        database = connection.connection.database
        assert async_to_sync(database.transact)(rename, tag.pk, "after") == "after"
        tag.refresh_from_db()
        assert tag.name == "after"
