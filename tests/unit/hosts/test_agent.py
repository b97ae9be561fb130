"""What mpirun has for ssh, as Open MPI 4.1.4 and 5.0.7 write it."""

from __future__ import annotations

import pytest

from runner.engines.hosts.agent import daemon_command

OF_4 = [
    *(" orted", "--daemonize", "-mca", "ess", '"env"', "-mca", "ess_base_vpid", "1"),
    *("-mca", "orte_hnp_uri", '"1151205376.0;tcp://10.0.0.1,10.88.0.1:56725;tcp6://[fd00::2]:37945"'),
]
OF_5 = [
    "PRTE_PREFIX=/usr;export PRTE_PREFIX;LD_LIBRARY_PATH=/usr/lib:$LD_LIBRARY_PATH;/usr/bin/prted",
    *("--daemonize", "--prtemca", "ess_base_nspace", '"prterun-vm-6632@0"', "--prtemca", "prte_hnp_uri"),
    '"prterun-vm-6632@0.0;tcp://10.0.0.1,10.88.0.1:50999:64,24,16"',
]


def test_the_daemon_of_open_mpi_4():
    uri = "1151205376.0;tcp://10.0.0.1,10.88.0.1:56725;tcp6://[fd00::2]:37945"
    expected = f"orted --daemonize -mca ess env -mca ess_base_vpid 1 -mca orte_hnp_uri {uri}"
    assert daemon_command(OF_4) == expected.split()


def test_the_daemon_of_open_mpi_5():
    uri = "prterun-vm-6632@0.0;tcp://10.0.0.1,10.88.0.1:50999:64,24,16"
    expected = f"prted --daemonize --prtemca ess_base_nspace prterun-vm-6632@0 --prtemca prte_hnp_uri {uri}"
    assert daemon_command(OF_5) == expected.split()


@pytest.mark.parametrize(
    "words", [["rm", "-r", "/"], [], ["orted-of-another"], ["sh", "-c", '"orted; true"']]
)
def test_anything_else_is_refused(words):
    with pytest.raises(ValueError, match="not one of mpirun's daemons"):
        daemon_command(words)
