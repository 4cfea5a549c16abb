"""An address with tls:// is encrypted, or nothing is said."""

from __future__ import annotations

import pytest

from pipeline.core.errors import LinkError
from pipeline.transport.nats import Access, Broker
from tests.fleet.broker import Nats


def test_a_password_is_not_told_to_a_broker_that_answers_in_the_clear(tmp_path):
    password = tmp_path / "password"
    password.write_text("secret\n")
    with Nats(tmp_path, more='authorization { users: [{user: "north", password: "secret"}] }') as nats:
        access = Access(address=f"tls://127.0.0.1:{nats.port}", user="north", password_file=password)
        with pytest.raises(LinkError, match="answers without encryption"):
            Broker(access, name="test")
