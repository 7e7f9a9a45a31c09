"""Addresses in a bucket that nobody has used, and what is there."""

import uuid

import pytest

from interlock.catalog.open_lane import CACHE_VARIABLE
from interlock.lanes.objectlog.log import bucket_of
from interlock.urls import parse_bucket_url
from tests.integration.objects.servers import BUCKET, Server


def without_key(server: Server, monkeypatch: pytest.MonkeyPatch, cache: str) -> str:
    """An address whose secrets are in the environment, where whoever follows a move finds them."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "S3RVER")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "S3RVER")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv(CACHE_VARIABLE, cache)
    return another(server)


def another(server: Server) -> str:
    """An address that nobody has used."""
    return f"s3://{BUCKET}/moving/{uuid.uuid4().hex}/shop?endpoint={server.endpoint}"


def objects(url: str) -> dict[str, bytes]:
    """Every object below the address."""
    bucket = bucket_of(parse_bucket_url(url))
    found = {key: bucket.get(key) for key in bucket.keys("")}
    return {key: each.data for key, each in found.items() if each is not None}
