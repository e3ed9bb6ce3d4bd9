"""The command line: what each subcommand prints, and how it fails."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from tests.engine.oracle_cases import DATA
from tests.models import ROOT, SMOLLM2, real_model

TINY = str(DATA / "llama" / "model.gguf")


def run_json(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    """The one object on stdout."""
    assert main([*argv, "--json"]) == 0
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    values: dict[str, Any] = json.loads(out)
    return values


def test_generate(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "generate", TINY, "-p", "some text", "-n", "7", "--temp", "0")
    assert values["finish_reason"] in ("length", "stop")
    assert len(values["tokens"]) == values["stats"]["n_generated"] <= 7
    assert main(["generate", TINY, "-p", "some text", "-n", "7", "--temp", "0"]) == 0
    assert capsys.readouterr().out == values["text"] + "\n"


def test_generate_repeats_with_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    runs = [run_json(capsys, "generate", TINY, "-p", "x", "-n", "9", "--temp", "2", "--seed", s) for s in "112"]
    assert runs[0]["tokens"] == runs[1]["tokens"] != runs[2]["tokens"]


def test_generate_from_a_file_and_from_stdin(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompt.txt").write_text("some text", encoding="utf-8")
    from_file = run_json(capsys, "generate", TINY, "-f", str(tmp_path / "prompt.txt"), "-n", "3", "--temp", "0")
    monkeypatch.setattr(sys, "stdin", io.StringIO("some text"))
    from_stdin = run_json(capsys, "generate", TINY, "-f", "-", "-n", "3", "--temp", "0")
    assert from_file["tokens"] == from_stdin["tokens"]
    (tmp_path / "prompt.txt").write_bytes(b"\xff\xfe\xfd")
    assert main(["generate", TINY, "-f", str(tmp_path / "prompt.txt")]) == 1
    assert "UTF-8" in capsys.readouterr().err


def test_bench_has_exactly_these_keys(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "bench", TINY, "-p", "20", "-n", "4", "-r", "2", "-t", "2")
    assert list(values) == ["model", "isa", "n_threads", "load_s", "pp", "tg", "rss_mb"]
    assert len(values["pp"]) == len(values["tg"]) == 2
    assert values["n_threads"] == 2
    assert values["rss_mb"] > 1


def test_info(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "info", TINY)
    assert values["arch"] == "llama"
    assert sum(values["types"].values()) < values["size_bytes"]
    assert main(["info", TINY]) == 0
    assert "n_layer" in capsys.readouterr().out


def test_tokenize(capsys: pytest.CaptureFixture[str]) -> None:
    values = run_json(capsys, "tokenize", TINY, "hello world", "--no-special")
    assert "".join(values["pieces"]).strip() == "hello world"
    assert len(values["tokens"]) == len(values["pieces"])


def test_perplexity(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a text of some length " * 20, encoding="utf-8")
    one = run_json(capsys, "perplexity", TINY, str(text), "--window", "100")
    assert one["n_windows"] > 1
    assert one["perplexity"] > 1
    text.write_text("", encoding="utf-8")
    assert main(["perplexity", TINY, str(text)]) == 1


def test_chat_reads_lines_from_a_pipe(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n\nand again\n/quit\nnever read\n"))
    assert main(["chat", TINY, "-n", "4", "--temp", "0"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("\n") >= 2
    assert captured.err == ""


@pytest.mark.parametrize(
    "argv",
    [
        ["info", "/nonexistent.gguf"],
        ["generate", TINY, "-p", "x", "--temp", "-1"],
        ["generate", TINY, "-p", "x", "--stop", ""],
        ["generate", TINY, "-p", "x" * 5000, "-c", "32"],
        ["generate", __file__, "-p", "x"],
        ["embed", TINY, "x" * 4000],
        ["perplexity", TINY, "/nonexistent.txt"],
    ],
)
def test_errors_are_one_line_and_status_1(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("causerie-cli: ")


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["generate", TINY], ["bench", TINY, "-p", "0"], ["info"]])
def test_wrong_usage_is_one_line_and_status_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = [sys.executable, "-m", "engine", "info", TINY]
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    os.close(write_end)
    assert done.stderr == ""
    assert done.returncode == 1


def start_chat(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "engine", "chat", str(real_model(SMOLLM2)), "--temp", "0", *options]
    # A shell's background jobs ignore SIGINT and hand that on; the chat must not inherit it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.real
@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_an_interrupt_stops_the_reply_also_in_a_long_prompt() -> None:
    with start_chat("-n", "1", "-c", "8192") as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        print("Hello.", file=chat.stdin, flush=True)
        assert chat.stdout.readline()  # it is ready and has answered once
        print("Count. " * 1500, file=chat.stdin, flush=True)
        time.sleep(0.3)
        began = time.perf_counter()
        chat.send_signal(signal.SIGINT)
        print("/quit", file=chat.stdin, flush=True)
        assert chat.wait(20) == 0
        assert time.perf_counter() - began < 2.0  # the end of the process included


@pytest.mark.real
@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_a_second_interrupt_ends_the_program() -> None:
    with start_chat() as chat:
        assert chat.stdin is not None
        assert chat.stdout is not None
        print("Tell me a long story.", file=chat.stdin, flush=True)
        assert chat.stdout.read(1)
        chat.send_signal(signal.SIGINT)
        time.sleep(0.3)
        chat.send_signal(signal.SIGINT)
        assert chat.wait(20) == 130


def test_embed_prints_a_vector_of_length_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["embed", str(TINY), "a text", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["embedding"]) == 64
    assert abs(sum(v * v for v in said["embedding"]) - 1.0) < 1e-5
    assert said["pooling"] == "mean"


def test_graph_needs_no_weights(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", str(TINY)]) == 0
    assert "result_output = mul_mat(" in capsys.readouterr().out


def test_serve_says_where_it_listens_and_ends_with_ctrl_c() -> None:
    command = [sys.executable, "-m", "engine", "serve", TINY, "--port", "0", "-c", "64"]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    url = server.stderr.readline().rpartition(" ")[2].strip()
    with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
        assert json.load(answer) == {"status": "ok"}
    server.send_signal(signal.SIGINT)
    assert server.wait(10) == 0
    assert server.stderr.read() == ""
    server.stderr.close()


def test_serve_refuses_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["serve", TINY, "--port", port]) == 1
    assert main(["serve", TINY, "--host", "0.0.0.0"]) == 1
    assert main(["serve", TINY, "--slot-save-path", str(tmp_path / "none")]) == 1
    (tmp_path / "key").write_text(" \n")
    assert main(["serve", TINY, "--api-key-file", str(tmp_path / "key")]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert "in use" in lines[0]
    assert "needs a key" in lines[1]


def test_an_encoder_decoder_answers_one_text(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(DATA / "t5" / "model.gguf")
    values = run_json(capsys, "generate", path, "-p", "the king of the", "-n", "5", "--temp", "0")
    assert values["prompt_tokens"][-1] == 1  # the source ends with </s>
    assert values["stats"]["n_prompt"] == len(values["prompt_tokens"]) + 1  # and the decoder's start
    assert len(values["tokens"]) == 5
    assert run_json(capsys, "embed", path, "the king")["pooling"] == "mean"
    assert len(run_json(capsys, "bench", path, "-p", "9", "-n", "3", "-r", "1")["tg"]) == 1
    assert main(["graph", path]) == 0
    encoder, decoder = capsys.readouterr().out.split("\n\n")
    assert (encoder.count("store_kv("), decoder.count("attn_cross(")) == (4, 2)
    for argv in (["chat", path], ["perplexity", path, __file__]):
        assert main(argv) == 1
        assert f"{argv[0]} is not available on an encoder-decoder" in capsys.readouterr().err
