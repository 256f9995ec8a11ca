from collections.abc import Iterator

import pytest

from counterfoil.testing.mail_client import CountingMailServer
from counterfoil.testing.wire import Wire


@pytest.fixture(scope="session")
def mail_server() -> Iterator[CountingMailServer]:
    with CountingMailServer() as server:
        yield server


@pytest.fixture
def mail(mail_server: CountingMailServer) -> Iterator[CountingMailServer]:
    mail_server.reset()
    yield mail_server
    mail_server.reset()


@pytest.fixture
def mail_wire(mail: CountingMailServer) -> Iterator[Wire]:
    with Wire(mail.host, mail.port) as wire:
        yield wire
