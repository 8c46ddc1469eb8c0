import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from simkv.cli.app import app, call
from simkv.config.load import load_config, read_json_config
from simkv.config.run import RunConfig
from simkv.cost import catalog
from simkv.errors import InvariantError

ROOT = Path(__file__).parents[1]
VERBS = ["", "run", "explain", "sweep", "pick", "models", "profiles", "replay",
         "trace", "trace describe", "trace convert", "trace reuse"]  # fmt: skip
SMALL = [
    "run", "--set", "workload.kind=synthetic", "--set", "workload.num_requests=20",
    "--set", "cost.kind=roofline",
]  # fmt: skip


def simkv(*tokens: str, **how: Any) -> subprocess.Popen[str]:
    """Start the command as a process of its own."""
    how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT, "text": True, **how}
    return subprocess.Popen([sys.executable, "-m", "simkv", *tokens], **how)


def help_of(verb: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert call([*verb.split(), "--help"]) == 0
    return capsys.readouterr().out


def commands_in(text: str) -> Iterator[list[str]]:
    """Command lines of a help page or a document, without comments and redirections."""
    for line in text.splitlines():
        if line.strip().startswith("simkv "):
            yield shlex.split(line.partition(">")[0], comments=True)[1:]


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_examples_that_parse(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, shown = help_of(verb, capsys).partition("Examples:")
    found = list(commands_in(shown))
    assert found
    for tokens in found:
        assert tokens[: len(verb.split())] == verb.split()
        app.parse_args(tokens, exit_on_error=False, print_error=False)


def test_commands_of_the_readme_parse() -> None:
    blocks = re.findall(
        r"^```\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )
    found = list(commands_in("\n".join(blocks)))
    assert len(found) > 5
    for tokens in found:
        app.parse_args(tokens, exit_on_error=False, print_error=False)


def test_every_parameter_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in VERBS:
        for line in help_of(verb, capsys).splitlines():
            # A parameter without a text would leave its line empty behind its name.
            if line.startswith("│ --"):
                assert len(line.strip("│ ").split()) > 2, (verb, line)


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys\nfrom simkv.cli.app import call\n"
        "assert call(['--version']) == call(['--help']) == call(['run', '--help']) == 0\n"
        "heavy = {'numpy', 'pyarrow', 'pydantic', 'scipy', 'pandas', 'simpy', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("tokens", "sentence"),
    [
        (["rn"], 'Unknown command "rn". Did you mean "run"? Available commands: run, explain, '
         "sweep, pick, trace, replay, models, profiles (see simkv --help)"),
        (["run", "--sett", "a=1"], "Unknown option: --sett. Did you mean --set? (see simkv run "
         "--help)"),
        (["run", "absent.toml"], "absent.toml: no such file; check the path"),
        (["run", "--set", "kv.block_tokens=0"], "--set kv.block_tokens=0: kv.block_tokens: 0 is "
         "not a block size, expected 1 or more"),
        (["trace", "describe"], "simkv trace describe needs a file, such as "
         "sample:sharegpt-agents"),
        (["trace", "describe", "absent.csv"], "absent.csv: there is no such file or folder"),
        (["trace", "convert", "a.csv", "b.txt"], "b.txt: is not called .parquet, which is what "
         "convert writes"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_code_2(
    tokens: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(tokens) == 2
    assert capsys.readouterr() == ("", f"simkv: error: {sentence}\n")


@pytest.mark.parametrize(
    ("error", "code", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "out/x"), 2, "error: out/x: the disk is "
         "full; free some space and run the same command again"),
        (PermissionError(errno.EACCES, "Permission denied", "/x"), 2, "error: /x: permission "
         "denied; check who owns it, or choose another place"),
        (FileNotFoundError(errno.ENOENT, "No such file", "x"), 2, "error: x: there is no such file "
         "or folder; check the path"),
        (OSError(errno.EIO, "Input/output error"), 2, "error: Input/output error"),
        (MemoryError(), 2, "error: out of memory; take a smaller trace or fewer workers"),
        (KeyboardInterrupt(), 130, "interrupted: nothing was written"),
        (KeyboardInterrupt("finished cells are kept"), 130, "interrupted: finished cells are kept"),
    ],
)  # fmt: skip
def test_what_the_machine_does_is_one_sentence(
    error: BaseException,
    code: int,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(catalog, "models", raising(error))
    assert call(["models"]) == code
    assert capsys.readouterr().err == f"simkv: {sentence}\n"


def test_a_broken_law_is_called_a_bug(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "models", raising(InvariantError("law 1: 3 slots are missing")))
    assert call(["models"]) == 70
    told = capsys.readouterr().err
    assert told.startswith("simkv: error: law 1: 3 slots are missing; this is a bug in simkv")
    assert told.count("\n") == 1


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*args: object, **options: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_process_says_so(signum: signal.Signals, tmp_path: Path) -> None:
    # The process waits for what this pipe would say, so it is known to be at work.
    pipe = tmp_path / "run.toml"
    os.mkfifo(pipe)
    process = simkv("run", str(pipe), "--out", str(tmp_path / "out"))
    with pipe.open("w"):
        process.send_signal(signum)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err == "simkv: interrupted: nothing was written\n"
    assert not (tmp_path / "out").exists()


def test_an_interruption_while_modules_load_is_one_sentence(tmp_path: Path) -> None:
    # A module that is imported early on waits for a pipe, so the process is known to be loading.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "cyclopts.py").write_text(f"open({str(pipe)!r}).read()")
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    process = simkv("models", env=env)
    with pipe.open("w"):
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")
    assert err == "simkv: interrupted: nothing was written\n"


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_closed_streams_are_no_crash(closed: str) -> None:
    number = {"stdout": 1, "stderr": 2}[closed]
    code = f"import os, sys; os.close({number}); os.execv(sys.executable, sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, sys.executable, "-m", "simkv", *SMALL],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr


def test_a_terminal_without_unicode_or_width(tmp_path: Path) -> None:
    env = os.environ | {"PYTHONIOENCODING": "ascii", "COLUMNS": "0"}
    process = simkv("run", "--help", env=env)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    assert "Usage" in out
    trace = tmp_path / "ü.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n")
    out, _ = simkv("trace", "describe", str(trace), env=env).communicate(timeout=30)
    assert out.splitlines()[0].split() == ["trace", "\\xfc"]
    out, _ = simkv("trace", "describe", str(trace), "--json", env=env).communicate(timeout=30)
    assert json.loads(out)["name"] == "ü"


def test_a_path_that_is_no_utf_8_is_one_sentence(tmp_path: Path) -> None:
    process = simkv(*SMALL, "--out", str(tmp_path / "a\udcff"))
    err = process.communicate(timeout=30)[1]
    assert process.returncode == 2
    assert err.splitlines()[-1].startswith("simkv: error: a path or a text is no UTF-8")
    assert not list(tmp_path.iterdir())


def test_a_reader_that_leaves_early_is_no_mistake() -> None:
    read, write = os.pipe()
    os.close(read)
    process = simkv("models", "--json", stdout=write)
    os.close(write)
    assert process.communicate(timeout=30)[1] == ""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_behind_stdout_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as full:
        process = simkv("models", stdout=full)
        err = process.communicate(timeout=30)[1]
    assert process.returncode == 2
    assert err == (
        "simkv: error: the disk is full; free some space and run the same command again\n"
    )


def test_models_and_devices_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["models"]) == 0
    assert "llama-3.1-8b" in capsys.readouterr().out
    assert call(["models", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"h100", "h200"} <= {device["name"] for device in listed["devices"]}


def test_profiles_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["profiles"]) == 0
    assert "h200" in capsys.readouterr().out
    assert call(["profiles", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["profiles"]


def test_print_config_reads_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--set", "kv.block_tokens=7", "--print-config"]) == 0
    file = tmp_path / "mine.toml"
    file.write_text(capsys.readouterr().out)
    assert load_config(file) == load_config(sets=["kv.block_tokens=7"])
    assert call(["run", str(file), "--print-config", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["config"]["kv"]["block_tokens"] == 7
    assert shown["origin"]["kv.block_tokens"].startswith(f"{file}:")


def test_a_run_prints_json_on_stdout_and_warnings_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    # Two of the longest requests do not fit a limit this low.
    assert call([*SMALL, "--set", "sched.max_model_len=1024", "--json", "--out", str(out)]) == 0
    told, err = capsys.readouterr()
    summary = json.loads(told)
    assert summary["num_requests"] == 20
    assert summary["num_finished"] + summary["num_rejected"] == 20
    assert "rejected" not in err or summary["num_rejected"]
    assert json.loads((out / "summary.json").read_text())["summary"] == summary
    assert read_json_config(out / "config.json").sched.max_model_len == 1024


def test_what_a_trace_says_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["run", "--set", "workload.transform.max_requests=5"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert any("note: " in line for line in lines)
    assert len(set(lines)) == len(lines)


def test_a_run_replaces_a_result_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_text("important")
    assert call([*SMALL, "--out", str(mine)]) == 2
    assert [file.name for file in mine.iterdir()] == ["thesis.tex"]
    assert capsys.readouterr().err.count("\n") == 1
    assert call([*SMALL, "--out", str(tmp_path / "out")]) == 0
    assert call([*SMALL, "--out", str(tmp_path / "out")]) == 0


def test_a_checked_run_leaves_steps_a_timeline_and_explanations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, timeline = tmp_path / "out", tmp_path / "new" / "timeline.json"
    assert call([*SMALL, "--check", "--steps", "--timeline", str(timeline), "--out", str(out)]) == 0
    assert "P99 TTFT" in capsys.readouterr().out
    assert (out / "steps.parquet").exists()
    assert json.loads(timeline.read_text())["traceEvents"]
    assert call(["explain", str(out), "--request", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["request"] == 3
    assert told["prefill_s"] > 0
    assert call(["explain", str(out), "--request", "3"]) == 0
    assert "where its time went" in capsys.readouterr().out
    assert call(["explain", str(out), "--json"]) == 0
    summary = json.loads((out / "summary.json").read_text())["summary"]
    parts = json.loads(capsys.readouterr().out)
    assert parts == {name: summary[name] for name in parts}
    assert call(["explain", str(out)]) == 0
    assert "waiting for KV blocks" in capsys.readouterr().out
    assert call(["explain", str(out), "--request", "20"]) == 2
    assert capsys.readouterr().err == (
        "simkv: error: there is no request 20; this result has 0 to 19\n"
    )
    for tokens in (["explain", str(tmp_path)], ["explain", str(tmp_path), "--request", "1"]):
        assert call(tokens) == 2
        assert "so it is no result of simkv run --out" in capsys.readouterr().err


def test_a_run_that_fails_leaves_no_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = tmp_path / "timeline.json"
    assert call(["run", "--set", "workload.path=absent.csv", "--timeline", str(timeline)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_run_where_nothing_fits_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert call([*SMALL, "--set", "kv.num_blocks=2"]) == 2
    assert "none of 20 requests could run (" in capsys.readouterr().err


def test_strict_forbids_rejections(capsys: pytest.CaptureFixture[str]) -> None:
    some = [*SMALL, "--set", "kv.num_blocks=33"]
    assert call(some) == 0
    assert call([*some, "--strict"]) == 2
    assert "--strict forbids" in capsys.readouterr().err


def test_traces_are_described_converted_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "t.jsonl"
    row = '{"timestamp": %d, "input_length": 1024, "output_length": 5, "hash_ids": [0, %d]}\n'
    trace.write_text("".join(row % (1000 * number, number + 1) for number in range(4)))
    assert call(["trace", "describe", str(trace), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert (described["num_requests"], described["span_s"]) == (4, 3.0)
    assert call(["trace", "convert", str(trace), str(tmp_path / "t.parquet")]) == 0
    capsys.readouterr()
    for file in (trace, tmp_path / "t.parquet"):
        assert call(["trace", "reuse", str(file), "--capacity-blocks", "1,5", "--json"]) == 0
        counted = json.loads(capsys.readouterr().out)
        assert (counted["blocks"], counted["ideal"]["hit_blocks"]) == (8, 3)
        assert [one["capacity_blocks"] for one in counted["capacities"]] == [1, 5]
    assert call(["trace", "describe", str(trace), str(trace)]) == 0
    assert capsys.readouterr().out.count("requests") == 2


def test_capacities_must_be_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(["trace", "reuse", "sample:sharegpt-agents", "--capacity-blocks", "1k"]) == 2
    assert "expected whole numbers with commas between" in capsys.readouterr().err


def test_the_default_file_is_what_a_bare_run_uses() -> None:
    assert load_config() == RunConfig()


def test_a_sweep_is_ranked_resumed_and_picked_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(
        "seeds = 2\n[base.workload]\nkind = 'synthetic'\nnum_requests = 20\n"
        "[base.cost]\nkind = 'roofline'\n[axes]\nkv.block_tokens = [7, 16]\n"
    )
    again = ["sweep", str(file), "--out", str(out), "--workers", "1"]
    assert call(again) == 0
    assert "| 1 |" in capsys.readouterr().out
    assert call([*again, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["num_cells_run"], told["num_cells_resumed"]) == (0, 4)
    assert {row["arm"] for row in told["ranking"]} == {"block_tokens=7", "block_tokens=16"}
    assert call(["pick", str(out), "--top", "1", "--json"]) == 0
    (picked,) = json.loads(capsys.readouterr().out)
    assert picked["arm"] == told["ranking"][0]["arm"]
    assert call(["pick", str(out)]) == 0
    told_to_people = capsys.readouterr().out
    assert told_to_people.count("vllm serve") == 2
    assert "note: No profile here varies the block size" in told_to_people
    (best,) = (out / "picks").glob("01-*.json")
    assert f"block_tokens={read_json_config(best).kv.block_tokens}" == picked["arm"]
    assert call(["run", str(best), "--print-config"]) == 0


def test_an_interrupted_sweep_says_that_it_goes_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simkv.sweep.run.run_sweep", raising(KeyboardInterrupt()))
    assert call(["sweep", "s.toml", "--out", "o"]) == 130
    assert capsys.readouterr().err == (
        "simkv: interrupted: finished cells are kept; the same command goes on from there\n"
    )


def test_replay_writes_steps_and_leaves_no_half_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, workload, out = tmp_path / "c.json", tmp_path / "w.jsonl", tmp_path / "steps.jsonl"
    config.write_text('{"sliding_window": 32}')
    line = {"id": "a", "arrival_step": 3, "segments": [[1, 20]], "output_len": 2, "output_start": 9}
    workload.write_text(json.dumps(line) + "\n")
    tokens = ["replay", str(config), str(workload), "--out", str(out)]
    assert call(tokens) == 0
    shown = capsys.readouterr()
    assert shown.out == f"2 steps in {out}\n"
    assert "accounts know no windows" in shown.err
    steps = [json.loads(text) for text in out.read_text().splitlines()]
    assert [(step["step"], step["sched"], step["fin"]) for step in steps] == [
        (3, [["a", 20, 0]], []),
        (4, [["a", 1, 20]], ["a"]),
    ]
    out.unlink()
    config.write_text('{"num_gpu_blocks": 2}')
    assert call([*tokens, "--manager", "blocks"]) == 2
    assert "request a can never run" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.json", "w.jsonl"]
