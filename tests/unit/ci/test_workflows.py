"""What the workflows may do, and what the runner of them here does with a workflow."""

import re
import subprocess

import pytest

from ci.workflow.expressions import fill
from ci.workflow.run import Run
from tests.support.images import ROOT

WORKFLOWS = {path.name: Run.read(path) for path in ROOT.glob(".github/workflows/*.yml")}
JOBS = [(name, job, body) for name, workflow in WORKFLOWS.items() for job, body in workflow["jobs"].items()]
STEPS = [step for _, _, body in JOBS for step in body["steps"]]
STEPS += [
    step for path in ROOT.glob(".github/actions/*/action.yml") for step in Run.read(path)["runs"]["steps"]
]


def test_nothing_is_permitted_but_by_a_job():
    assert {name: workflow["permissions"] for name, workflow in WORKFLOWS.items()} == {
        name: {} for name in WORKFLOWS
    }
    assert all("permissions" in body for _, _, body in JOBS)


def test_a_pull_request_gets_no_right_to_write():
    """A job that may write runs only for pushes, by its own condition."""
    writing = [
        (name, body["if"])
        for name, _, body in JOBS
        if "write" in body["permissions"].values() and name == "images.yml"
    ]
    assert writing
    for _, condition in writing:
        assert "github.event_name == 'push'" in condition or "github.ref == 'refs/heads/main'" in condition
    assert "pull_request" not in WORKFLOWS["update.yml"]["on"]


def test_actions_are_named_by_commit():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert [
        name for name in used if not name.startswith("./") and not re.search(r"@[0-9a-f]{40}$", name)
    ] == []


def test_nothing_that_others_write_becomes_part_of_a_script():
    """Branches and titles are data: scripts read them from the environment."""
    assert [step["run"] for step in STEPS if "${{ github." in step.get("run", "")] == []


def test_images_are_pushed_when_all_else_has_passed():
    publish = WORKFLOWS["images.yml"]["jobs"]["publish"]
    assert set(publish["needs"]) >= {"lint", "toolchains", "tests"}
    texts = [step.get("run", step.get("uses", "")) for step in publish["steps"]]
    checked = texts.index("./.github/actions/checked-image")
    assert checked < next(place for place, text in enumerate(texts) if "result push" in text)


def test_every_job_is_collected():
    jobs = WORKFLOWS["images.yml"]["jobs"]
    assert set(jobs["collect"]["needs"]) == jobs.keys() - {"collect"}


@pytest.fixture
def ran(tmp_path):
    """Run a workflow of one job with these steps."""

    def run(*steps, container=None, env=None):
        job = {"steps": list(steps), "env": env or {}, **({"container": container} if container else {})}
        run = Run({"jobs": {"job": job}}, tmp_path / "run", tmp_path, "", tmp_path, github={"token": "t"})
        return run.all()["job"]["result"]

    return run


BASHISM = "[[ a = a ]]"


def test_steps_get_the_shell_that_github_gives_them(ran):
    assert ran({"run": BASHISM}) == "success"


def test_steps_in_containers_get_sh(ran):
    same = subprocess.run(["sh", "-c", BASHISM], capture_output=True, check=False).returncode == 0
    assert ran({"run": BASHISM}, container="debian:13") == ("success" if same else "failure")


def test_a_shell_that_is_named_is_used_in_containers(ran):
    assert ran({"run": BASHISM, "shell": "bash"}, container="debian:13") == "success"


def test_a_pipe_fails_only_in_a_bash_that_is_named(ran):
    assert ran({"run": "false | true"}) == "success"


def test_a_pipe_fails_in_a_bash_that_is_named(ran):
    assert ran({"run": "false | true", "shell": "bash"}) == "failure"


def test_what_comes_after_a_failure_is_left_out(ran, tmp_path):
    after = {"run": f"touch {tmp_path}/after"}
    always = {"run": f"touch {tmp_path}/always", "if": "${{ always() }}"}
    assert ran({"run": "false"}, after, always) == "failure"
    assert ((tmp_path / "after").exists(), (tmp_path / "always").exists()) == (False, True)


def test_outputs_and_variables_reach_the_next_step(ran):
    first = {"id": "first", "run": 'echo "word=$WORD" >> "$GITHUB_OUTPUT"', "env": {"WORD": "a b"}}
    assert ran(first, {"run": '[ "${{ steps.first.outputs.word }}" = "a b" ] && [ -z "$WORD" ]'}) == "success"


def test_a_variable_is_text_whatever_it_was_made_from(ran, tmp_path):
    step = {"run": f"touch {tmp_path}/done", "env": {"TRUE": "${{ github.token != '' }}"}}
    then = {"if": "${{ env.KNOWN == 'true' }}", "run": f"touch {tmp_path}/then"}
    assert ran(step, then, env={"KNOWN": "${{ github.token != '' }}"}) == "success"
    assert (tmp_path / "then").exists()


def test_no_run_of_main_or_of_a_tag_takes_the_place_of_another():
    """Of the runs that wait in one group, GitHub keeps the last."""
    group = WORKFLOWS["images.yml"]["concurrency"]["group"]

    def of(event, ref, sha):
        return fill(group, {"github": {"event_name": event, "ref": ref, "sha": sha}}, {})

    pushes = [
        ("refs/heads/main", "a"),
        ("refs/heads/main", "b"),
        ("refs/tags/v1", "a"),
        ("refs/tags/v1.0", "a"),
    ]
    assert len({of("push", *pushed) for pushed in pushes}) == len(pushes)
    assert len({of("pull_request", "refs/pull/1/merge", sha) for sha in "ab"}) == 1
