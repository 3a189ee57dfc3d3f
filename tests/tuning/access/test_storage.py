"""Whether a server listens at the address of the studies, for any password and without showing it."""

import re
import socket
from urllib.parse import quote

import pytest

from gatehouse.errors import StoreError
from gatehouse.tuning.access.address import STORAGE, StorageAddressError
from gatehouse.tuning.access.storage import require_address, require_server
from tests.ports import free_port
from tests.tuning.access.test_proxy import SECRETS

STARTS = {"grpc://": "`gatehouse tuning serve-storage` at "}
STARTS |= {f"postgresql://me:{quote(each, safe='')}@": ".*postgresql://" for each in SECRETS}


@pytest.mark.parametrize("start", STARTS)
def test_a_server_that_listens_passes_and_one_that_does_not_is_told_without_its_password(start: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        require_server(f"{start}127.0.0.1:{listening.getsockname()[1]}/")
    away = f"127.0.0.1:{free_port()}"
    with pytest.raises(StoreError, match=rf"{STORAGE}: expected {STARTS[start]}{away}.*refused.* Start") as raised:
        require_server(f"{start}{away}/")
    assert not re.search(r"s3|\bcret", str(raised.value))


@pytest.mark.parametrize(
    ("url", "port"),
    [("grpc://{}", 13000), ("postgresql://me@{}/db", 5432), ("mysql+pymysql://{}/db", 3306), ("grpc://[{}]:5", 5)],
)
def test_a_server_is_looked_for_at_its_usual_port(monkeypatch: pytest.MonkeyPatch, url: str, port: int) -> None:
    asked = list[tuple[str, int]]()

    def connect(address: tuple[str, int], _: float) -> socket.socket:
        asked.append(address)
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    require_server(url.format("::1" if "[" in url else "db"))
    assert asked == [("::1" if "[" in url else "db", port)]


@pytest.mark.parametrize(
    "url", ["sqlite:///studies.db", "postgresql:///db?host=/run/postgresql", "postgresql://a,b/db"]
)
def test_what_names_no_single_server_is_not_looked_for(url: str) -> None:
    require_server(url)


@pytest.mark.parametrize("url", ["grpc://a..b:1", "postgresql://me:s3cret@a..b/db"])
def test_a_name_that_no_server_can_have_is_told(url: str) -> None:
    with pytest.raises(StoreError, match=r"a\.\.b.*label empty") as raised:
        require_server(url)
    assert "s3cret" not in str(raised.value)


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_a_port_that_there_is_not_is_refused_as_part_of_the_address(port: int) -> None:
    with pytest.raises(
        StorageAddressError, match=rf"postgresql://db:{port}/db: port {port}: expected a number from 1 to"
    ):
        require_address(f"postgresql://me:s3cret@db:{port}/db")
