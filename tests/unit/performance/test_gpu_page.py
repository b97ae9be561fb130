"""docs/performance-gpu.md: what the reports of a machine with a GPU say."""

from __future__ import annotations

from tests.gpu.serving.model import summary
from tests.gpu.serving.page import ROOT, page, whole_page
from tests.gpu.serving.profile import busiest

MACHINE = {
    "side": "machine",
    "gpu_and_driver": "NVIDIA H200, 580.1",
    "cores": 16,
    "python": "3.12.3",
    "date": "2026-11-21",
    "vllm": "0.26.0",
    "torch": "2.11.0",
}


def run(side, rate, gap=None, **others):
    figures = {"side": side, "streams": 64, "tokens_per_second": rate, "whole": 64}
    figures["time_to_first_token"] = {"p50": 0.1, "p99": 0.2}
    return figures | ({"gap": {"p50": 0.01, "p99": gap}} if gap else {}) | others


def rows(reports, title):
    """The cells of one table, by its first column."""
    text = page(reports)
    lines = text[text.index(f"| {title}") :].split("\n\n")[0].splitlines()[2:]
    return dict(line.strip("| ").split(" | ") for line in lines)


REPORTS = [
    [MACHINE, run("async_llm", 1000), run("runner, cog", 900, 0.02), run("runner, cog", 990, 0.03)],
    [MACHINE | {"date": "2026-11-22"}, run("runner, cog", 980, 0.04)],
]


def test_medians_over_the_calls_with_most_sides_and_shares_of_the_engine_in_the_same_call():
    faster = [MACHINE, run("async_llm", 2000), run("runner, cog", 1800, 0.03)]
    assert rows([*REPORTS, faster], "output tokens/s") == {
        "vLLM's engine, driven directly": "1,500 (1.00)",
        "our front, Cog's API": "990 (0.92)",
    }


def test_the_slow_path_of_the_rust_front_is_not_held_against_it():
    used = {"cpu_us_per_token": {"front": 100.0, "engine core": 30.0}}
    report = [MACHINE, run("runner, openai", 9, 0.02, **used), run("serve_rust", 9, 0.02, **used)]
    assert rows([report], "CPU, us per token") == {"our front, OpenAI's API": "100"}
    assert rows([report], "CPU of the engine core")["`vllm serve`, Rust front"] == "30"


def test_512_streams_are_told_of_each_call_with_the_rust_front():
    both = [run("serve_rust", 9, 0.02, streams=512), run("runner, cog", 9, 0.03, streams=512)]
    more = [run("async_llm", 9, 0.01, streams=512), run("runner, cog", 9, 0.05, streams=512)]
    text = page([[MACHINE, *both], [MACHINE, *both, *more], [MACHINE, *more]])
    section = text.split("## 512 streams, call by call\n")[1]
    assert section.strip().splitlines()[-3:] == [
        "| vLLM's engine, driven directly |  | 10.0 / 200 (1) |",
        "| our front, Cog's API | 30.0 / 200 (1) | 40.0 / 200 (2) |",
        "| `vllm serve`, Rust front | 20.0 / 200 (1) | 20.0 / 200 (1) |",
    ]


def test_prompts_of_other_lengths_have_a_section_of_their_own():
    longer = [
        run("async_llm", 500, 0.01, prompt_tokens=160),
        run("runner, cog", 400, 0.02, prompt_tokens=160),
    ]
    usual = [run("async_llm", 1000, 0.03, prompt_tokens=128)]
    first, section = page([*REPORTS, [MACHINE, *usual, *longer]]).split("## With prompts of other lengths\n")
    assert "400" not in first
    assert "| gap, p50 / p99, ms; prompt tokens: | 128 | 160 |\n" in section
    assert "| vLLM's engine, driven directly | 10.0 / 30.0 | 10.0 / 10.0 |\n" in section


def test_another_gpu_has_a_section_of_its_own():
    machine = MACHINE | {"gpu_and_driver": "NVIDIA H100, 580.1"}
    newer = MACHINE | {"gpu_and_driver": "NVIDIA H200, 590.2"}
    text = page(
        [
            *REPORTS,
            [newer, run("async_llm", 3000), run("runner, cog", 3000, 0.03)],
            [
                machine,
                run("async_llm", 500),
                run("runner, cog", 400, whole=63),
                {"side": "start", "seconds": 7},
            ],
        ]
    )
    first, section = text.split("## On an NVIDIA H100\n")
    assert first.startswith("# On a GPU\n\nMade by")
    assert "the reports of 3 calls" in first
    assert "lost a token: 0." in first
    assert "| our front, Cog's API | 990 (0.97) |" in first
    assert "were refused or lost a token: 1." in section
    assert "| our front, Cog's API | 400 (0.80) |" in section
    assert "| each start to READY | 7 s |" in section


def test_gaps_of_the_sides_that_told_them():
    assert rows(REPORTS, "gap between chunks") == {"our front, Cog's API": "10.0 / 25.0"}


def test_versions_and_dates_are_those_of_the_calls():
    text = page(REPORTS)
    assert (
        "NVIDIA H200, 580.1, 16 cores; vLLM 0.26.0, PyTorch 2.11.0, Python 3.12.3; 2026-11-21 and 2026-11-22."
        in text
    )


def test_the_page_is_what_the_reports_say():
    assert (ROOT / "docs/performance-gpu.md").read_text() == whole_page()


def test_other_arguments_have_a_section_of_their_own():
    others = {"engine_args": {"max_cudagraph_capture_size": 1024}}
    report = [MACHINE, run("async_llm", 500, **others), run("runner, cog", 400, 0.02, **others)]
    first, section = page([*REPORTS, report]).split("## With max_cudagraph_capture_size 1024\n")
    assert first.partition("2026")[2].strip() == page(REPORTS).partition("2026")[2].strip()
    assert (
        "| vLLM's engine, driven directly | 500 (1.00) |\n| our front, Cog's API | 400 (0.80) |\n" in section
    )
    assert "| our front, Cog's API | 10.0 / 20.0 |\n" in section


def test_lost_streams_are_told():
    assert "streams that were refused or lost a token: 1." in page(
        [[MACHINE, run("runner, cog", 9, whole=63)]]
    )


def test_runs_and_lost_streams_are_counted_of_every_section():
    others = {"engine_args": {"max_num_batched_tokens": 4096}}
    half = [MACHINE, run("runner, cog", 9, **others), run("runner, cog", 8, whole=62, **others)]
    text = page([[MACHINE, run("runner, cog", 9)], half])
    assert "Medians of 1 to 2\nruns; streams that were refused or lost a token: 2." in text


def test_quantiles_and_mean():
    assert summary([3.0, 1.0, 2.0, 10.0]) == {"p50": 2.0, "p99": 3.0, "mean": 4.0}


def test_functions_are_counted_without_their_lines_where_stacks_end():
    stacks = "thread (0x1);main (a.py:1);step (b.py:2) 3\nthread (0x2);step (b.py:7) 3\nthread (0x1);wait (c.py:1) 2\n"
    assert busiest(stacks) == {"samples": 8, "functions": [["step (b.py)", 0.75], ["wait (c.py)", 0.25]]}


def test_the_last_profile_of_a_process_is_told():
    first = {
        "side": "runner, profile",
        "streams": 512,
        "process": "front",
        "functions": [["earlier (a.py)", 1.0]],
    }
    last = first | {"functions": [["send (b.py)", 0.5], ["read (c.py)", 0.25]]}
    text = page([*REPORTS, [MACHINE, first, last]])
    assert "| our front, OpenAI's API | 512 | front | `send (b.py)` 50%, `read (c.py)` 25% |\n" in text
    assert "earlier" not in text


def test_code_that_torch_compile_made_is_called_so():
    figures = {"side": "runner, profile", "streams": 8, "process": "engine core"}
    functions = [[f"call (c{'a2' * 25}.py)", 1.0]]
    assert "`call (what torch.compile made)` 100%" in page(
        [*REPORTS, [MACHINE, figures | {"functions": functions}]]
    )


def table(path, title):
    """The cells below each of the columns, by the first of their row."""
    lines = path.read_text().split(f"| {title}", 1)[1].split("\n\n")[0].splitlines()
    head, *body = ([cell.strip("| *") for cell in line.split(" | ")] for line in (lines[0], *lines[2:]))
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in body}


def test_the_readme_has_the_figures_of_the_page():
    measured = table(ROOT / "docs/performance-gpu.md", "output tokens/s")
    told = table(ROOT / "README.md", "streams")
    for side in ("vLLM's engine, driven directly", "cog-triton, OpenAI's API", "`vllm serve`, Rust front"):
        on_page = measured[side.replace("cog-triton", "our front")]
        for streams, rate in told[side].items():
            assert on_page[streams].split()[0] == rate


KILLED = {
    "streams": 64,
    "told": {"E2400 E2409": 64},
    "seconds_until_all_were_told": 5.5,
    "seconds_until_service": 70.2,
    "gpu_memory_mib": {"before": 9, "least_meanwhile": 5, "after": 9},
}


def several(**common):
    """Reports of one GPU, of two, and of two hosts, all with the same weights."""
    told = {"weights": "read"} | common
    both = told | {"gpus": 2}
    hosts = both | {"hosts": 2}
    ray = both | {"engine_args": {"distributed_executor_backend": "ray"}}
    greedy = {"side": "greedy", "prompts": 50, "equal": 40, "tokens": 1200, "before_the_first_other": 1000}
    return [
        [MACHINE | told | {"cores": 32}, run("runner, cog", 1000, 0.02, **told)],
        [MACHINE | both | {"cores": 32}, run("runner, cog", 1500, 0.01, **both), greedy | both],
        [MACHINE | both | {"cores": 32}, run("async_llm", 1600, **ray)],
        [
            MACHINE | both | {"cores": 32},
            {"side": "nccl", "channels": {"NET/Socket/0": 4}, "lines": []} | hosts,
            run("runner, cog", 400, 0.05, **hosts, whole=63),
            {"side": "joined host killed"} | KILLED | hosts,
        ],
    ]


def test_several_gpus_have_a_section_of_their_own_and_are_held_against_one():
    reports = [*REPORTS, *several()]
    first, section = page(reports).split("## Two GPUs")
    assert first.strip() == page(REPORTS).strip()
    assert "Two GPUs of one machine (NVIDIA H200, 580.1); vLLM" in section
    assert rows(reports, "output tokens/s (of one GPU's)") == {
        "one GPU, our front, Cog's API": "1,000 (1.00)",
        "two GPUs, our front, Cog's API": "1,500 (1.50)",
        "two GPUs by ray, vLLM's engine, driven directly": "1,600",
        "two hosts, our front, Cog's API": "400 (0.40)",
    }
    assert set(section.splitlines()) >= {
        "Streams that were refused or lost a token: 1.",
        "| two GPUs | greedy tokens after 50 prompts, 1200 in all | 40 prompts continued as on one GPU; 1000 tokens before the first that differs |",
        "| two hosts | NCCL's channels | 4 via NET/Socket/0 |",
        (
            "| two hosts | the joined host killed under 64 streams"
            " | E2400 with E2409 to 64 within 5.50 s; service after 70 s; 5 MiB held meanwhile |"
        ),
    }
