"""The ranks of a TensorRT-LLM engine on two hosts: the real Open MPI, and the stand-in of the executor."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from runner.protocol.engine import Request
from runner.protocol.frames import ShutdownFrame, StartFailedFrame
from shared.home import SCRATCH
from shared.layout import PROJECT_ROOT
from tests.hosts.conftest import LOST_WITHIN, SECRET, address_of, expect_ready, first_host, joined, told
from tests.support.processes import MARK, marked
from tests.support.tensorrt_llm_engine import STAND_IN, runner_environment, stand_in_tokens
from tests.support.waiting import wait_for

DAEMONS = {"orted", "prted"}  # of Open MPI 4, and of 5


@pytest.fixture
def cluster(tmp_path, namespaces, mark):
    return Cluster(tmp_path, namespaces, mark)


class Cluster:
    """Two hosts with one GPU each, and an engine for two."""

    def __init__(self, directory, namespaces, mark) -> None:
        self.first, self.second = namespaces
        self.mark = mark
        self.log = directory / "log"
        self.log.touch()
        self.settings = runner_environment(directory, tp_size=2, tell_devices=True)
        self.engine = directory / "engine"
        self.common = {MARK: mark, "ENGINE_ENVIRONMENT": MARK, "PYTHONPATH": f"{PROJECT_ROOT}:{STAND_IN}"}

    def serving(self, **options):
        python = f"{self.settings['COG_TRITON_HOME']}/engines/tensorrt_llm/bin/python"
        return first_host(self.first, self.engine, "tensorrt_llm", python, self.log, **options, **self.common)

    def joining(self, *, secret: str = SECRET, **settings: str):
        environment = self.common | self.settings | {"HOSTS_SECRET": secret}
        words = (
            "env",
            *(f"{name}={value}" for name, value in settings.items()),
            sys.executable,
            "-m",
            "cli.joining",
            address_of(self.first),
        )
        return joined(self.second.command(*words), self.log, **environment)

    def pids(self, part: str) -> list[int]:
        return [pid for pid, command in marked(self.mark).items() if part in command]

    def ranks_of_second(self) -> list[int]:
        here = set(self.second.pids())
        return [pid for pid in self.pids("--rank-address") if pid in here]


def is_rank(command: str) -> bool:
    return "--rank-address" in command and not command.startswith("mpirun")


def serves(driver) -> None:
    tokens, _, _ = driver.run(Request(1, [20], 50))
    assert tokens[1] == stand_in_tokens([20], 50)


def test_ranks_on_two_hosts_serve_as_one_and_end_together(cluster):
    with cluster.joining(), cluster.serving() as (process, driver):
        expect_ready(driver, cluster.log)
        serves(driver)
        assert len(cluster.ranks_of_second()) == 1
        devices = [(cluster.engine / f"engine/devices{rank}").read_text() for rank in (0, 1)]
        assert devices == ["[0] 2", "[0] 2"]
        assert SECRET not in "".join(marked(cluster.mark).values())
        driver.send(ShutdownFrame())
        assert process.wait(20) == 0, cluster.log.read_text()
    assert SECRET not in cluster.log.read_text()


def test_a_rank_that_dies_on_the_other_host_ends_the_engine_which_starts_again(cluster):
    with cluster.joining() as joining:
        with cluster.serving() as (process, driver):
            expect_ready(driver, cluster.log)
            (rank,) = cluster.ranks_of_second()
            os.kill(rank, signal.SIGKILL)
            assert process.wait(LOST_WITHIN) != 0
        with cluster.serving() as (_, driver):
            expect_ready(driver, cluster.log)
            serves(driver)
        assert joining.poll() is None


def test_what_a_killed_mpirun_leaves_is_where_it_is_removed(cluster, temporary):
    scratch = temporary / "scratch"
    scratch.mkdir()
    cluster.common[SCRATCH] = str(scratch)
    with cluster.joining(), cluster.serving() as (process, driver):
        expect_ready(driver, cluster.log)
        (mpirun,) = (pid for pid, command in marked(cluster.mark).items() if command.startswith("mpirun "))
        os.kill(mpirun, signal.SIGKILL)
        assert process.wait(LOST_WITHIN) != 0
    assert [path.name for path in scratch.iterdir()] == [f"ompi.{cluster.first.name}.{os.getuid()}"]
    assert list(temporary.iterdir()) == [scratch]


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_a_host_that_is_lost_is_told_in_time_and_the_engine_starts_again(cluster, how):
    with cluster.joining() as joining, cluster.serving() as (process, driver):
        expect_ready(driver, cluster.log)
        started = time.monotonic()
        if how == "killed":
            joining.kill()
        else:
            cluster.second.cut()
        assert told(driver).startswith(f"E2409 HostLost: The host {cluster.second.address}, which ")
        assert process.wait(5) == 1
        assert time.monotonic() - started < LOST_WITHIN
        # The rank there ends by itself, as soon as its link does.
        wait_for(lambda: not cluster.ranks_of_second(), LOST_WITHIN)
        if how == "cut off":
            cluster.second.mend()
            with cluster.serving() as (_, again):
                expect_ready(again, cluster.log)
                serves(again)


def test_without_hosts_enough_it_says_so(cluster):
    with cluster.serving(seconds=0.5) as (process, driver):
        text = told(driver)
        assert process.wait(10) == 1
    assert text.startswith("E2408 HostsMissing: ")
    assert "after 0.5 s, GPUs needed: 2; GPUs of this host: 1, of the others: none" in text


def test_an_address_that_is_not_this_hosts_is_refused(cluster):
    cluster.first, cluster.second = cluster.second, cluster.first._replace(address=cluster.first.address)
    cluster.first = cluster.first._replace(address="10.231.77.9")
    with cluster.serving() as (_, driver):
        assert "cannot listen on 10.231.77.9:5700: " in told(driver)


@pytest.mark.parametrize(
    ("case", "reason"),
    [("secret", "the other side ended the connection"), ("engine", "the digest of the engine's files is ")],
)
def test_a_host_with_another_secret_or_engine_is_refused(cluster, case, reason):
    secret = SECRET
    with cluster.serving():
        if case == "secret":
            secret = "another secret of the hosts"
        else:
            other = cluster.log.parent / "other"
            shutil.copytree(cluster.engine, other)
            (other / "config.json").write_text('{"engine": "tensorrt_llm", "model": "other"}')
            cluster.settings["ENGINE_DIR"] = str(other)
        with cluster.joining(secret=secret) as joining:
            assert joining.wait(20) == 1
    assert f"E4016 HostNotJoined: This host cannot join 10.231.77.1:5700: {reason}" in cluster.log.read_text()


def test_what_a_rank_of_another_host_cannot_load_is_told(cluster):
    text = (
        "The engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 8.0"
    )
    script = cluster.engine / "engine/stand_in.json"
    script.write_text(json.dumps({"load_log": text, "failing_rank": 1}))
    with cluster.joining(), cluster.serving() as (_, driver):
        assert "E2503 EngineOfAnotherGpu: " in told(driver)


def test_a_host_without_mpis_daemon_says_so(cluster):
    nothing = cluster.log.parent / "empty"
    nothing.mkdir()
    with cluster.joining(PATH=str(nothing)), cluster.serving() as (_, driver):
        assert " could not do its part: there is no orted there. " in told(driver)


@pytest.fixture
def host_file(cluster):
    """As the MPI Operator does: a host file, and a program in the place of ssh."""
    hosts, agent = cluster.log.parent / "hostfile", cluster.log.parent / "agent"
    hosts.write_text("".join(f"{host.address} slots=1\n" for host in (cluster.first, cluster.second)))
    agent.write_text(f'#!/bin/sh\nshift\nexec {shlex.join(cluster.second.command("sh", "-c"))} "$*"\n')
    agent.chmod(0o755)
    cluster.common |= dict.fromkeys(("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"), str(agent))
    return str(hosts)


def test_a_rank_that_dies_here_is_no_lost_host(cluster, host_file):
    with cluster.serving(mpi_hosts=host_file) as (process, driver):
        expect_ready(driver, cluster.log)
        there = set(cluster.second.pids())
        for pid in {pid for pid, command in marked(cluster.mark).items() if is_rank(command)} - there:
            os.kill(pid, signal.SIGKILL)
        assert not [frame for frame in driver.frames if isinstance(frame, StartFailedFrame)]
        assert process.wait(LOST_WITHIN) != 0


@pytest.mark.parametrize("first", ["its rank", "its daemon", "its daemon, told to end"])
def test_a_host_of_the_file_that_ends_is_named_whatever_ends_first_there(cluster, host_file, first):
    with cluster.serving(mpi_hosts=host_file) as (process, driver):
        expect_ready(driver, cluster.log)
        commands = {pid: marked(cluster.mark).get(pid, "") for pid in cluster.second.pids()}
        ranks = [pid for pid in commands if is_rank(commands[pid])]
        daemons = [pid for pid in commands if Path(commands[pid].partition(" ")[0]).name in DAEMONS]
        assert ranks
        assert daemons
        if first == "its daemon, told to end":
            ends = [(pid, signal.SIGTERM) for pid in daemons]
        else:
            pids = ranks + daemons if first == "its rank" else daemons + ranks
            ends = [(pid, signal.SIGKILL) for pid in pids]
        for pid, end in ends:
            with suppress(ProcessLookupError):
                os.kill(pid, end)
        assert told(driver).startswith(f"E2409 HostLost: The host {cluster.second.address}, which ")
        assert process.wait(LOST_WITHIN) != 0


def test_the_launcher_of_a_cluster_starts_ranks_on_the_hosts_of_its_file(cluster, host_file):
    with cluster.serving(mpi_hosts=host_file) as (process, driver):
        expect_ready(driver, cluster.log)
        serves(driver)
        assert len(cluster.ranks_of_second()) == 1
        driver.send(ShutdownFrame())
        assert process.wait(20) == 0


@pytest.fixture
def slurm(cluster):
    """Of Open MPI its own parts for Slurm; srun, which starts a daemon on each other node, is a script."""
    first, second = cluster.first.name, cluster.second.name
    folder = cluster.log.parent / "slurm"
    folder.mkdir()
    srun = folder / "srun"
    srun.write_text(
        "#!/bin/sh\n"
        'while case "$1" in --nodelist=*) nodes=${1#*=} ;; --*) ;; *) false ;; esac; do shift; done\n'
        f'test "$nodes" = {second} || exit 1\n'
        f'SLURM_NODEID=0 SLURMD_NODENAME={second} exec {shlex.join(cluster.second.command())} "$@"\n'
    )
    srun.chmod(0o755)
    cluster.common |= {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SLURM_JOBID": "1",
        "SLURM_NODELIST": f"{first[:-1]}[1-2]",
        "SLURM_TASKS_PER_NODE": "1(x2)",
    }
    return cluster


def test_in_an_allocation_of_slurm_mpirun_finds_the_hosts_by_itself(slurm):
    with slurm.serving(mpi_hosts="cluster") as (process, driver):
        expect_ready(driver, slurm.log)
        serves(driver)
        assert len(slurm.ranks_of_second()) == 1
        driver.send(ShutdownFrame())
        assert process.wait(20) == 0


def test_a_host_that_the_cluster_gave_and_that_is_cut_off_is_told_in_time(slurm):
    with slurm.serving(mpi_hosts="cluster") as (process, driver):
        expect_ready(driver, slurm.log)
        started = time.monotonic()
        slurm.second.cut()
        assert told(driver).startswith(f"E2409 HostLost: The host {slurm.second.address}, which ")
        assert process.wait(5) == 1
        assert time.monotonic() - started < LOST_WITHIN
        wait_for(lambda: not slurm.ranks_of_second(), LOST_WITHIN)
        slurm.second.mend()  # mpirun's daemon there ends when it hears that mpirun has
