"""Where the nodes of a job meet, by what operators set in the environment."""

import pytest

from gatehouse.launchers.kubernetes.node import rendezvous_options

ONE = {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "job-master-0", "PET_MASTER_PORT": "23456"}
ELASTIC = {"PET_NNODES": "1:4", "PET_RDZV_ENDPOINT": "job-worker-0:23456", "PET_RDZV_BACKEND": "c10d"}


@pytest.mark.parametrize(
    ("environment", "options"),
    [
        ({}, []),
        (ONE, []),
        (ELASTIC, []),
        (ONE | {"PET_NNODES": "2"}, ["--nodes=2:2", "--rendezvous=job-master-0:23456", "--run-id=launch"]),
    ],
    ids=["no operator", "one node", "elastic", "two nodes"],
)
def test_only_a_fixed_number_of_nodes_is_told_where_to_meet(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], options: list[str]
) -> None:
    for name in ONE | ELASTIC:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert rendezvous_options("launch") == options
