"""Signed addresses of objects, and where the keys come from."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from ciao_kernel.delivery.object_store import bucket, credentials
from ciao_kernel.delivery.object_store.bucket import Bucket
from ciao_kernel.delivery.object_store.credentials import Credentials
from ciao_kernel.errors import BackendError

KEYS = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
VARIABLES = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "hush", "HOME": "/nowhere"}


def test_the_signature_is_that_of_the_published_example() -> None:
    """Amazon S3, "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)"."""
    one = Bucket("https://examplebucket.s3.amazonaws.com", "/", KEYS)
    address = one.signed("GET", "test.txt", 86400, now=1369353600)
    assert parse_qs(urlsplit(address).query)["X-Amz-Signature"] == [
        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"
    ]


def test_an_address_is_for_one_verb_one_object_and_one_time() -> None:
    one = Bucket("https://host", "/b/", KEYS)
    first = one.signed("PUT", "a", 60, now=1e9)
    assert one.signed("PUT", "a", 60, now=1e9) == first
    others = {
        one.signed("GET", "a", 60, now=1e9),
        one.signed("PUT", "b", 60, now=1e9),
        one.signed("PUT", "a", 61, now=1e9),
        one.signed("PUT", "a", 60, now=1e9 + 1),
    }
    signatures = {address.rpartition("=")[2] for address in (first, *others)}
    assert len(signatures) == 5
    assert "wJalr" not in first
    assert "wJalr" not in repr(one)


def test_temporary_keys_send_their_token() -> None:
    keys = Credentials("id", "hush", "to/ken==")
    query = parse_qs(urlsplit(Bucket("https://host", "/b/", keys).signed("GET", "a")).query)
    assert query["X-Amz-Security-Token"] == ["to/ken=="]


@pytest.mark.parametrize(
    ("address", "more", "begin"),
    [
        ("s3://data/a b", {}, "https://data.s3.us-east-1.amazonaws.com/a%20b/x?"),
        ("s3://data", {"AWS_REGION": "eu-west-1"}, "https://data.s3.eu-west-1.amazonaws.com/x?"),
        ("s3://my.data/p", {}, "https://s3.us-east-1.amazonaws.com/my.data/p/x?"),
        ("s3://data/p", {"AWS_ENDPOINT_URL": "http://h:9/"}, "http://h:9/data/p/x?"),
        ("https://minio:9000/data/p/", {}, "https://minio:9000/data/p/x?"),
    ],
)
def test_the_server_and_the_path_of_a_bucket(
    address: str, more: dict[str, str], begin: str
) -> None:
    assert bucket.find(address, {**VARIABLES, **more}).signed("GET", "x").startswith(begin)


def test_keys_come_from_the_profile_if_no_variable_has_them(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = a%b\naws_secret_access_key = c\n"
        "[team]\naws_access_key_id=d\naws_secret_access_key=e\naws_session_token=f\n"
    )
    (tmp_path / ".aws/config").write_text("[profile team]\nregion = eu-north-1\n")
    home = {"HOME": str(tmp_path)}
    assert credentials.find(home) == Credentials("a%b", "c")
    team = credentials.find({**home, "AWS_PROFILE": "team"})
    assert team == Credentials("d", "e", "f", "eu-north-1")
    named = credentials.find({**home, **VARIABLES, "HOME": str(tmp_path), "AWS_PROFILE": "team"})
    assert named == Credentials("id", "hush", "", "eu-north-1")


def test_missing_keys_and_a_broken_file_are_named_without_their_lines(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match=r"no credentials for the bucket .*profile default"):
        credentials.find({"HOME": str(tmp_path)})
    (tmp_path / "broken").write_text("aws_secret_access_key = hush\n")
    with pytest.raises(BackendError, match="broken is not a file of profiles") as caught:
        credentials.find({"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "broken")})
    assert "hush" not in str(caught.value)
