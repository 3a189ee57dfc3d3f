"""What the policy promises: never above quota, no room left unused, a team's own at once, fair shares of the rest."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.launchers.kueue.cohort import Cohort
from gatehouse.launchers.kueue.policy import Job, Queues
from gatehouse.launchers.kueue.simulation import Simulated, simulate
from gatehouse.launchers.kueue.spec import Kueue

GPU = ("a100", "gpu")


def _kueue(*teams: dict[str, Any], **policy: Any) -> Kueue:
    def team(number: int, given: dict[str, Any]) -> dict[str, Any]:
        weight = given.pop("weight", 1)
        return {
            "name": f"t{number}",
            "namespaces": [f"t{number}"],
            "weight": weight,
            "quotas": given.pop("quotas", None) or {"a100": {"gpu": given}},
        }

    flavors = [{"name": "a100"}, {"name": "t4"}]
    body = {"flavors": flavors, "teams": [team(number, dict(one)) for number, one in enumerate(teams)]}
    return Kueue.model_validate(body | policy)


def _job(name: str, gpus: int, team: str = "t0", priority: int = 0, created: float = 0, minutes: float = 60) -> Job:
    return Job(name, team, priority, created, minutes, {"gpu": gpus * 1000})


def _starts(simulated: Simulated) -> dict[str, list[float]]:
    return {course.job.name: course.started for course in simulated.courses}


def test_a_team_borrows_what_others_do_not_use_up_to_both_limits() -> None:
    cohort = Cohort(_kueue({"nominal": 4, "borrowing_limit": 3}, {"nominal": 8, "lending_limit": 2}, {"nominal": 0}))
    assert [cohort.available(team, GPU) // 1000 for team in ("t0", "t1", "t2")] == [6, 12, 6]
    cohort.add("t1", {GPU: 6000})  # Its own, that it does not lend.
    assert cohort.available("t0", GPU) == 6000
    cohort.add("t1", {GPU: 1000})
    assert cohort.available("t0", GPU) == 5000
    cohort.add("t0", {GPU: 5000})
    assert cohort.share("t0") == pytest.approx(1 / 6)
    assert [cohort.available(team, GPU) for team in ("t0", "t1", "t2")] == [0, 0, 0]


def test_a_team_takes_its_own_back_at_once_from_the_newest_borrower() -> None:
    kueue = _kueue({"nominal": 4}, {"nominal": 4})
    jobs = [_job(f"long-{number}", 2, created=number, minutes=600) for number in range(4)]
    simulated = simulate(kueue, [*jobs, _job("own", 4, team="t1", created=100)])
    assert _starts(simulated)["own"] == [100]
    assert [course.ended for course in simulated.courses] == [0, 0, 1, 1, 0]
    assert all(course.finished is not None for course in simulated.courses)


def test_work_since_the_last_checkpoint_is_done_again_and_no_more() -> None:
    kueue = _kueue({"nominal": 0}, {"nominal": 4})
    jobs = [_job("borrows", 4, minutes=100), _job("own", 4, team="t1", created=40, minutes=10)]
    simulated = simulate(kueue, jobs, checkpoint_minutes=15, restart_minutes=2)
    borrows = simulated.courses[0]
    assert (borrows.started, borrows.lost) == ([0, 50], 10)  # 40 minutes: two checkpoints, and 10 minutes.
    assert borrows.finished == 50 + 2 + 70


def test_what_is_free_is_shared_by_weight() -> None:
    kueue = _kueue({"nominal": 0, "weight": 2}, {"nominal": 0, "weight": 1}, {"nominal": 12})
    jobs = [_job(f"{team}-{number}", 1, team=team, minutes=100) for team in ("t0", "t1") for number in range(20)]
    held: list[Counter[str]] = []
    simulate(kueue, jobs, look=lambda now, queues: held.append(_in_use(queues)))
    assert held[0] == {"t0": 8, "t1": 4}


def test_who_borrowed_first_gives_back_until_shares_are_fair() -> None:
    kueue = _kueue({"nominal": 0}, {"nominal": 0}, {"nominal": 8})
    early = [_job(f"early-{number}", 1, minutes=500) for number in range(8)]
    late = [_job(f"late-{number}", 1, team="t1", created=10, minutes=500) for number in range(8)]
    held: list[Counter[str]] = []
    simulate(kueue, early + late, look=lambda now, queues: held.append(_in_use(queues)))
    assert held[:2] == [{"t0": 8}, {"t0": 4, "t1": 4}]


@pytest.mark.parametrize(("order", "started"), [("BestEffortFIFO", 5), ("StrictFIFO", 120)])
def test_whether_a_large_job_lets_a_small_one_pass(order: str, started: float) -> None:
    jobs = [_job("first", 3), _job("large", 4, created=1), _job("small", 1, created=5, minutes=10)]
    assert _starts(simulate(_kueue({"nominal": 4}, order=order), jobs))["small"] == [started]


def test_higher_priority_ends_lower_in_its_own_queue_alone() -> None:
    kueue = _kueue({"nominal": 2}, {"nominal": 2})
    jobs = [
        _job("low", 2, minutes=500),
        _job("others", 2, team="t1", minutes=500),
        _job("high", 2, priority=5, created=9),
    ]
    simulated = simulate(kueue, jobs)
    assert _starts(simulated) == {"low": [0, 69], "others": [0], "high": [9]}


def test_the_next_flavor_is_taken_where_the_first_is_full() -> None:
    quotas = {"a100": {"gpu": {"nominal": 1}}, "t4": {"gpu": {"nominal": 1}}}
    queues = Queues(_kueue({"quotas": quotas}))
    for number in range(3):
        queues.submit(_job(str(number), 1, created=number))
    queues.schedule(5, lambda one: None, lambda one: None)
    assert [list(one.usage) for one in queues.running.values()] == [[GPU], [("t4", "gpu")]]


def _in_use(queues: Queues) -> Counter[str]:
    return Counter({team: used[GPU] // 1000 for team, used in queues.cohort.usage.items() if used[GPU]})


_TEAMS = st.lists(
    st.fixed_dictionaries(
        {"nominal": st.integers(0, 6), "weight": st.sampled_from([0, 1, 2])},
        optional={"borrowing_limit": st.integers(0, 6)},
    ),
    min_size=1,
    max_size=4,
)
_JOBS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 6), st.integers(0, 2), st.integers(0, 50), st.integers(1, 60)),
    max_size=25,
)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(teams=_TEAMS, drawn=_JOBS, reclaim=st.sampled_from(["Any", "LowerPriority", "Never"]))
def test_at_every_moment(teams: list[dict[str, Any]], drawn: list[tuple[int, ...]], reclaim: str) -> None:
    kueue = _kueue(*teams, reclaim=reclaim)
    whole = sum(team["nominal"] for team in teams) * 1000
    jobs = [
        _job(str(number), gpus, f"t{team % len(teams)}", priority, created, minutes)
        for number, (team, gpus, priority, created, minutes) in enumerate(drawn)
    ]
    reachable = {job.name for job in jobs if Cohort(kueue).fits(job.team, {GPU: job.asks["gpu"]})}

    ran: set[str] = set()

    def look(now: float, queues: Queues) -> None:
        used = {
            name: sum(one.usage[GPU] for one in queues.running.values() if one.job.team == name)
            for name in queues.waiting
        }
        assert sum(used.values()) <= whole
        for number, team in enumerate(teams):
            limit = team.get("borrowing_limit", 10**6) + team["nominal"]
            assert used[f"t{number}"] <= limit * 1000, "above quota"
        for name, waiting in queues.waiting.items():
            for job in waiting:
                assert not queues.cohort.fits(name, {GPU: job.asks["gpu"]}), "there is room, and a job waits"
                # A job that was ended in this moment ends others from the next one on.
                own = job.name not in ran and queues.cohort.within(name, {GPU: job.asks["gpu"]})
                assert not (own and reclaim == "Any"), "others borrow what a waiting job is entitled to"
        ran.clear()
        ran.update(queues.running)

    simulated = simulate(kueue, jobs, look=look)
    assert {course.job.name for course in simulated.courses if course.finished is not None} == reachable
    for course in simulated.courses:
        if course.finished is not None:
            assert course.finished - course.job.created >= course.job.minutes
