"""The wish that training ends."""

from gatehouse.launchers.launcher import Stop


def test_what_runs_is_ended_once_however_often_it_is_wished() -> None:
    """A second signal would end a job before its checkpoint is written."""
    stop, ended = Stop(), list[int]()
    with stop.ending(lambda: ended.append(1)):
        stop.ask()
        stop.ask()
        assert ended == [1]
    with stop.ending(lambda: ended.append(2)):
        stop.ask()
    assert ended == [1, 2] and stop.requested()
