import asyncio

import pytest

from runner.front.writes import GatheringTransport, Writes


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed = self.ended = False

    def write(self, data: bytes) -> None:
        assert not self.ended  # uvloop raises, too
        self.sent.append(data)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


def after_a_pass(act):
    """What two transports have sent after `act(first, second)`: immediately, and after the pass."""

    async def main():
        writes, inside = Writes(), [Transport(), Transport()]
        act(*(GatheringTransport(one, writes) for one in inside))
        at_once = [list(one.sent) for one in inside]
        await asyncio.sleep(0)
        return at_once, [one.sent for one in inside]

    return asyncio.run(main())


def test_what_is_written_in_one_pass_goes_out_together():
    def act(first, second):
        first.write(b"head")
        second.write(b"other")
        first.write(b"body")

    assert after_a_pass(act) == ([[], []], [[b"headbody"], [b"other"]])


def test_nothing_is_lost_by_closing():
    def act(first, _):
        first.write(b"last")
        first.close()

    assert after_a_pass(act) == ([[b"last"], []], [[b"last"], []])


def test_nothing_is_written_after_the_last_words_and_others_are_served():
    def act(first, second):
        first.has_read_all = False
        first.write(b"last")
        first.close()
        assert first.is_closing()
        assert not first._transport.closed
        first.write(b"later")
        second.write(b"other")

    assert after_a_pass(act) == ([[b"last"], []], [[b"last"], [b"other"]])


def test_nothing_is_written_to_a_connection_that_was_lost():
    def act(first, _):
        first.write(b"late")
        first._transport.close()

    assert after_a_pass(act) == ([[], []], [[], []])


def test_much_goes_out_at_once():
    def act(first, _):
        first.write(bytes(1 << 15))
        first.write(bytes((1 << 15) + 1))

    at_once, later = after_a_pass(act)
    assert [len(data) for data in at_once[0]] == [(1 << 16) + 1]
    assert later == at_once


def test_all_else_is_the_transports_own():
    transport = GatheringTransport(Transport(), Writes())
    assert not transport.is_closing()
    with pytest.raises(AttributeError):
        transport.get_extra_info("peername")
