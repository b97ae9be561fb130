"""No process of a runner leaves a core dump: it would hold API keys and prompts."""

from __future__ import annotations

from pathlib import Path

from tests.integration.test_stuck_logs import started
from tests.support.processes import descendants

ALLOWED = ["sh", "-c", 'ulimit -S -c "$(ulimit -H -c)"; exec "$@"', "sh"]


def test_no_process_of_a_runner_leaves_a_core_dump(mock_archive, tmp_path):
    with started(mock_archive(), tmp_path, command=ALLOWED) as runner:
        processes = {runner.process.pid, *descendants(runner.process.pid)}
        assert len(processes) >= 4
        for pid in processes:
            (limit,) = [
                line.split()[4]
                for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
                if line.startswith("Max core file size")
            ]
            assert limit in ("0", "1")
