"""The rate of calls: a burst, then as many as come back."""

from gatehouse.server.access import Rate


def test_a_burst_passes_and_then_what_comes_back() -> None:
    clock = [0.0]
    rate = Rate(2, 3, lambda: clock[0])
    assert [rate.wait("ada") for _ in range(5)] == [0, 0, 0, 0.5, 0.5]
    assert rate.wait("bob") == 0
    clock[0] = 0.5
    assert [rate.wait("ada") for _ in range(2)] == [0, 0.5]
    clock[0] = 1000.0
    assert [rate.wait("ada") for _ in range(4)] == [0, 0, 0, 0.5]
