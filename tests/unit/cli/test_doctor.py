"""Each check on a machine that has what it looks for, and on one that lacks it."""

import json
import os
import shutil
import socket

import pytest
from typer.testing import CliRunner

from cli.doctor import (
    CHECKS,
    Severity,
    container_tool,
    disk,
    gpu,
    memory,
    nix,
    parts,
    port,
    shared_memory,
    sockets,
    system,
    tls,
)
from cli.doctor.check import Check, error, ok
from cli.main import app
from runner.lifecycle.machine import Gpu, Machine
from shared.cog.server import free_port
from shared.errors import GpusMissing
from tests.support.files import CERTIFICATE

H200 = Gpu("NVIDIA H200", 90)


def found(module):
    """Severities and texts, and that whatever is not well has a remedy."""
    findings = module.CHECK.findings()
    assert findings
    assert all(bool(one.remedy) == (one.severity is not Severity.OK) for one in findings)
    return {one.severity for one in findings}, " ".join(f"{one.message} {one.remedy}" for one in findings)


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """A PATH with nothing but the programs that are put there."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()

    def put(name, script=""):
        path = tmp_path / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return put


def test_every_check_says_something_here():
    result = CliRunner().invoke(app, ["doctor", "--json"])
    shown = json.loads(result.output)["checks"]
    assert [one["name"] for one in shown] == [check.name for check in CHECKS]
    for one in shown:
        assert one["description"]
        for finding in one["findings"]:
            assert set(finding) == {"severity", "message", "remedy"}
            assert "could not be checked" not in finding["message"]


def test_the_text_and_the_exit_status(monkeypatch):
    checks = (Check("a", "Side A", lambda: [ok("fine"), error("It is broken.", "Mend it.")]),)
    monkeypatch.setattr("cli.doctor.CHECKS", checks)
    result = CliRunner().invoke(app, ["doctor"])
    assert result.exit_code == 1
    assert result.output.splitlines() == [
        "Side A", "  ok      fine", "  error   It is broken.", "          Mend it.", "1 error, 0 warnings",
    ]  # fmt: skip


def test_a_check_that_fails_is_a_finding():
    def look():
        raise KeyError("x")

    (finding,) = Check("a", "A", look).findings()
    assert finding.severity is Severity.WARNING
    assert "KeyError" in finding.message


def test_a_wrong_setting_is_no_bug(monkeypatch):
    monkeypatch.setenv("MAX_BODY_BYTES", "abc")
    severities, text = found(disk)
    assert severities == {Severity.ERROR}
    assert text == (
        "The setting MAX_BODY_BYTES is 'abc', but it must be a whole number. See docs/environment.md, or for an option `--help`."
    )


@pytest.mark.parametrize("on_host", [True, False])
def test_an_image_needs_nothing_of_a_host(monkeypatch, on_host):
    monkeypatch.setattr("shared.layout.SETUP", CERTIFICATE if on_host else CERTIFICATE.with_name("none"))
    shown = json.loads(CliRunner().invoke(app, ["doctor", "--json"]).output)["checks"]
    names = {check.name for check in CHECKS} - (set() if on_host else {"container_tool", "nix"})
    assert {one["name"] for one in shown} == names


class TestSystem:
    def test_here(self):
        assert found(system)[0] == {Severity.OK}

    def test_one_core(self, monkeypatch):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
        assert found(system)[1].strip().endswith(", 1 CPU core")

    def test_another_processor(self, monkeypatch):
        monkeypatch.setattr("platform.machine", lambda: "arm64")
        severities, text = found(system)
        assert severities == {Severity.ERROR}
        assert "arm64" in text

    @pytest.mark.parametrize("libc", [("glibc", "2.31"), ("", "")])
    def test_another_c_library(self, monkeypatch, libc):
        monkeypatch.setattr("platform.libc_ver", lambda: libc)
        severities, text = found(system)
        assert Severity.ERROR in severities
        library = " ".join(libc).strip() or "another C library"
        assert f"has {library};" in text
        assert f", {library}, " in text


class TestParts:
    def test_here(self):
        assert found(parts)[0] == {Severity.OK}

    def test_nothing(self, monkeypatch, tmp_path):
        monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path))
        severities, text = found(parts)
        assert severities == {Severity.ERROR, Severity.WARNING}
        assert "make setup" in text

    def test_a_builder_needs_no_triton(self, monkeypatch, tmp_path):
        (tmp_path / "engines/ctranslate2/bin").mkdir(parents=True)
        (tmp_path / "engines/ctranslate2/bin/python").touch()
        monkeypatch.setenv("COG_TRITON_HOME", str(tmp_path))
        assert found(parts)[0] == {Severity.OK, Severity.WARNING}


class TestGpu:
    @pytest.fixture
    def machine(self, monkeypatch):
        def set_up(**changes):
            machine = Machine(
                **{
                    "gpus": (H200,),
                    "driver": "580.65",
                    "cuda": (13, 0),
                    "shared_mib": 1,
                    "locked_mib": None,
                    "memory_mib": 1,
                }
                | changes
            )
            monkeypatch.setattr(gpu, "read_machine", lambda _: machine)

        return set_up

    def test_one(self, machine):
        machine()
        severities, text = found(gpu)
        assert severities == {Severity.OK}
        assert "NVIDIA H200" in text
        assert "SM 90: images whose name ends in -full, or in -90 if there are any" in text

    def test_one_that_no_image_is_for(self, machine):
        machine(gpus=(H200._replace(name="Tesla T4", sm=75),))
        severities, text = found(gpu)
        assert severities == {Severity.OK, Severity.WARNING}  # its driver is as it should be
        assert "SM 75: too old" in text
        assert "-full" not in text

    def test_an_old_driver(self, machine):
        machine(cuda=(12, 4))
        severities, text = found(gpu)
        assert Severity.WARNING in severities
        assert "supports CUDA 12.4; tensorrt_llm needs CUDA 13.0" in text.replace("needs 13", "needs CUDA 13")

    def test_hidden(self, machine, monkeypatch):
        machine(gpus=())
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        assert "CUDA_VISIBLE_DEVICES" in found(gpu)[1]

    def test_none(self, machine, monkeypatch):
        machine(gpus=())
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert "The driver reports no GPU" in found(gpu)[1]

    @pytest.mark.parametrize(
        ("devices", "said"),
        [
            ({}, "There is no NVIDIA GPU"),
            ({"0x10de": "0x030000"}, "There is an NVIDIA GPU, but the driver is gone"),
            ({"0x10de": "0x040300"}, "There is no NVIDIA GPU"),
            ({"0x8086": "0x030000"}, "There is no NVIDIA GPU"),
        ],
    )
    def test_no_driver(self, monkeypatch, tmp_path, devices, said):
        def read(needed):
            raise GpusMissing(needed=needed, found=0, reason="the driver is gone")

        for vendor, kind in devices.items():
            (tmp_path / "0000:01").mkdir()
            (tmp_path / "0000:01/vendor").write_text(f"{vendor}\n")
            (tmp_path / "0000:01/class").write_text(f"{kind}\n")
        monkeypatch.setattr(gpu, "_PCI", tmp_path)
        monkeypatch.setattr(gpu, "read_machine", read)
        severities, text = found(gpu)
        assert severities == {Severity.WARNING}
        assert said in text


class TestSharedMemory:
    @pytest.mark.parametrize(
        ("gpus", "free", "severities"),
        [(0, 1, {Severity.OK}), (2, 64 << 20, {Severity.WARNING}), (2, 8 << 30, {Severity.OK})],
    )
    def test_sizes(self, monkeypatch, gpus, free, severities):
        status = type("Status", (), {"f_bavail": free, "f_frsize": 1})
        monkeypatch.setattr(shared_memory, "on_the_bus", lambda: gpus)
        monkeypatch.setattr("os.statvfs", lambda _: status)
        monkeypatch.setattr("resource.getrlimit", lambda _: (-1, -1))
        assert found(shared_memory)[0] == severities

    def test_locked(self, monkeypatch):
        monkeypatch.setattr(shared_memory, "on_the_bus", lambda: 2)
        monkeypatch.setattr("resource.getrlimit", lambda _: (1 << 20, -1))
        assert "--ulimit memlock=-1" in found(shared_memory)[1]

    def test_none(self, monkeypatch, tmp_path):
        monkeypatch.setattr(shared_memory, "on_the_bus", lambda: 2)
        monkeypatch.setattr(shared_memory, "_PLACE", str(tmp_path / "none"))
        assert "has 0 bytes free: an engine on several GPUs may need more" in found(shared_memory)[1]


@pytest.mark.parametrize(
    ("limit", "said"), [("max", "This machine has"), (str(1 << 30), "This container may use 1.1 GB")]
)
def test_memory(monkeypatch, tmp_path, limit, said):
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    monkeypatch.setattr(memory, "_CGROUP_LIMIT", tmp_path / "memory.max")
    assert said in found(memory)[1]


class TestDisk:
    @pytest.mark.parametrize(("free", "severity"), [(10**12, Severity.OK), (10**9, Severity.WARNING)])
    def test_sizes(self, monkeypatch, free, severity):
        monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**13, 0, free))
        severities, text = found(disk)
        assert severities == {severity}
        assert "1.0 " in text

    def test_not_writable(self, monkeypatch):
        monkeypatch.setattr(os, "access", lambda *_: False)
        severities, text = found(disk)
        assert severities == {Severity.ERROR}
        assert "Set WEIGHTS_CACHE to another directory." in text

    @pytest.mark.parametrize(
        ("variables", "named"),
        [
            ({"HF_HUB_CACHE": "/models", "HUGGINGFACE_HUB_CACHE": "/older"}, "HF_HUB_CACHE"),
            ({"HUGGINGFACE_HUB_CACHE": "/older"}, "HUGGINGFACE_HUB_CACHE"),
            ({"HF_HUB_CACHE": ""}, "HF_HOME"),
        ],
    )
    def test_where_models_go_is_named(self, monkeypatch, variables, named):
        for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
            monkeypatch.setenv(name, variables.get(name, ""))
        monkeypatch.setattr(os, "access", lambda *_: False)
        assert f"(models from the hub) cannot be written to. Set {named} to another" in found(disk)[1]

    def test_nowhere_for_temporary_files(self, monkeypatch):
        def no_place() -> str:
            raise FileNotFoundError

        monkeypatch.setattr("tempfile.gettempdir", no_place)
        monkeypatch.setattr(os, "access", lambda *_: False)
        severities, text = found(disk)
        assert severities == {Severity.ERROR}
        assert "Set TMPDIR to another directory." in text


class TestPort:
    def test_free(self, monkeypatch):
        monkeypatch.setenv("PORT", str(free_port()))
        assert found(port)[0] == {Severity.OK}

    def test_taken(self, monkeypatch):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            monkeypatch.setenv("PORT", str(listener.getsockname()[1]))
            assert found(port)[0] == {Severity.WARNING}

    @pytest.mark.parametrize("value", ["none", "0", "65536", "9" * 5000])
    def test_none(self, monkeypatch, value):
        monkeypatch.setenv("PORT", value)
        assert "is not a port" in found(port)[1]


class TestContainerTool:
    def test_nothing(self, programs):
        severities, text = found(container_tool)
        assert severities == {Severity.WARNING}
        assert "Neither docker nor podman answers" in text

    def test_a_daemon_that_does_not_answer(self, programs):
        programs("docker", "exit 1")
        assert "docker is installed, but does not answer" in found(container_tool)[1]

    def test_all(self, programs, monkeypatch, tmp_path):
        monkeypatch.setattr(container_tool, "_DRIVER", tmp_path / "none")
        programs("podman", "echo podman version 5.0.0")
        programs("skopeo")
        severities, text = found(container_tool)
        assert severities == {Severity.OK}
        assert "podman 5.0.0" in text

    @pytest.mark.parametrize("toolkit", [True, False])
    def test_gpus_in_containers(self, programs, monkeypatch, tmp_path, toolkit):
        monkeypatch.setattr(container_tool, "_DRIVER", tmp_path)
        if toolkit:
            programs("nvidia-ctk")
        assert ("containers cannot use GPUs" in found(container_tool)[1]) is not toolkit


class TestNix:
    def test_none(self, programs):
        assert found(nix)[0] == {Severity.WARNING}

    @pytest.mark.parametrize(
        ("features", "missing"),
        [
            ("nix-command flakes", ""),
            ("nix-command", "flakes"),
            ("flakes", "nix-command"),
            ("", "flakes, nix-command"),
        ],
    )
    @pytest.mark.parametrize("command", ["show-config", "config show"])
    def test_features(self, programs, features, missing, command):
        """As Nix does it: a feature of the command line counts, and without nix-command it says nothing."""
        script = f"""
        [ "$1" = --version ] && echo nix 2.30 && exit
        features="{features}"
        [ "$1" = --extra-experimental-features ] && features="$features $2" && shift 2
        case "$features" in *nix-command*) ;; *) exit 1 ;; esac
        [ "$*" = "{command}" ] && echo "experimental-features = $features"
        """
        programs("nix", script)
        severities, text = found(nix)
        assert severities == {Severity.WARNING if missing else Severity.OK}
        assert not missing or f"not enabled: {missing}. " in text

    @pytest.mark.parametrize(
        ("version", "too_old"),
        [
            ("nix (Nix) 2.8.0", True),
            ("nix (Nix) 2.18.1", False),
            ("nix (Lix, like Nix) 2.91.1", False),
            ("nix (Determinate Nix 3.8.2) 2.12.0", True),
            ("nix (Nix) 3.0pre20270101_abc", False),
        ],
    )
    def test_one_that_cannot_read_nixpkgs(self, programs, version, too_old):
        programs(
            "nix",
            f"""[ "$1" = --version ] && echo "{version}" || echo experimental-features = flakes nix-command""",
        )
        severities, text = found(nix)
        assert severities == {Severity.WARNING if too_old else Severity.OK}
        assert version in text
        assert ("ci/build-image" in text) is too_old

    def test_determinate_has_both_features_for_good_and_lists_neither(self, programs):
        script = '[ "$1" = --version ] && echo "nix (Determinate Nix 3.8.2) 2.30.1" || echo "experimental-features ="'
        programs("nix", script)
        assert found(nix)[0] == {Severity.OK}

    def test_broken(self, programs):
        programs("nix", "exit 1")
        assert "does not answer" in found(nix)[1]


def test_a_log_of_tls_keys_that_cannot_be_written_is_not_taken_for_certificates(monkeypatch):
    monkeypatch.setenv("SSLKEYLOGFILE", "/none/keys")
    severities, text = found(tls)
    assert severities == {Severity.ERROR}
    assert "SSLKEYLOGFILE is /none/keys, which cannot be written (No such file or directory)." in text


@pytest.mark.parametrize("place", ["file", "file/below", "file/below/it"])
def test_a_file_is_no_place_for_engines(monkeypatch, tmp_path, place):
    (tmp_path / "file").touch()
    monkeypatch.setenv("WEIGHTS_CACHE", str(tmp_path / place))
    severities, text = found(disk)
    assert Severity.ERROR in severities
    assert f"{tmp_path / place} (engines that are served) cannot be used: Not a directory." in text


def test_a_place_for_sockets(monkeypatch, tmp_path):
    monkeypatch.setattr("runner.lifecycle.run_directory._ELSEWHERE", ())
    assert found(sockets)[0] == {Severity.OK}
    (tmp_path / "file").touch()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    severities, text = found(sockets)
    assert severities == {Severity.ERROR}
    assert f"no place for the runner's sockets and small files: {tmp_path / 'file'}: Not a directory." in text


@pytest.mark.parametrize("variable", ["WEIGHTS_CACHE", "SSL_CERT_FILE"])
def test_a_name_that_is_too_long_is_no_bug(variable, monkeypatch):
    monkeypatch.setenv(variable, f"/{'a' * 256}")
    severities, text = found(disk if variable == "WEIGHTS_CACHE" else tls)
    assert Severity.ERROR in severities
    assert variable in text
