"""Facts for the manifest: complete where they can be had, and never a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capture import host, redaction


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (["train.py", "--lr", "0.1"], ["train.py", "--lr", "0.1"]),
        (["train.py", "--api-key", "abc", "--lr", "1"], ["train.py", "--api-key", "***", "--lr", "1"]),
        (["train.py", "--hf_token=abc"], ["train.py", "--hf_token=***"]),
        (["train.py", "HF_TOKEN=abc"], ["train.py", "HF_TOKEN=***"]),
        (["train.py", "--password", "--lr", "1"], ["train.py", "--password", "--lr", "1"]),
        (["tokenize.py", "out"], ["tokenize.py", "out"]),
        (["x.py", "--secret", "-x", "--lr"], ["x.py", "--secret", "***", "--lr"]),
        (
            ["x.py", "--pwd", "a", "--key", "b", "--bearer", "c"],
            ["x.py", "--pwd", "***", "--key", "***", "--bearer", "***"],
        ),
        (["x.py", "s3://me:pw@host/a?X-Sig=1"], ["x.py", "s3://host/a?***"]),
        (["x.py", '{"api_key": "abc", "n": 1}'], ["x.py", '{"api_key": ***, "n": 1}']),
        (["x.py", "Authorization: Bearer abc"], ["x.py", "Authorization: ***"]),
        (
            ["x.py", "--num-key-value-heads", "8", "--author", "me"],
            ["x.py", "--num-key-value-heads", "8", "--author", "me"],
        ),
        (["x.py", "--tokenizer=gpt2", "-p", "8"], ["x.py", "--tokenizer=gpt2", "-p", "8"]),
    ],
)
def test_values_that_look_secret_are_hidden(argv: list[str], shown: list[str]) -> None:
    assert redaction.redacted_command(argv) == shown


@given(st.text(alphabet="abcxyz0189", min_size=5), st.sampled_from(["--token", "--secret-key", "--db-password"]))
def test_no_secret_is_ever_shown(value: str, name: str) -> None:
    for argv in (["run", name, value], ["run", f"{name}={value}"]):
        assert value not in " ".join(redaction.redacted_command(argv))


def test_only_variables_of_the_allow_list_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_NUM_CORES", "2")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("NEURON_RT_ROOT_COMM_ID", "10.0.0.1:1")
    taken = host.allowed_environment()
    assert taken["NEURON_RT_NUM_CORES"] == "2"
    assert set(taken) <= set(host.ENVIRONMENT_ALLOW_LIST)
    assert "secret" not in taken.values() and "10.0.0.1:1" not in taken.values()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("--model-type=transformer  -O2", "--model-type=transformer  -O2"),
        ("-O1 --auth-token=zzz --lnc=2", "-O1 --auth-token=*** --lnc=2"),
        ("--auth-token 'z z' -O1", "--auth-token *** -O1"),
        ('--auth-token="z z" -O1', "--auth-token=*** -O1"),
        ("s3://key:zzz@bucket/cache?token=zzz", "s3://bucket/cache?***"),
    ],
)
def test_allowed_variables_lose_their_secrets(monkeypatch: pytest.MonkeyPatch, value: str, shown: str) -> None:
    monkeypatch.setenv("NEURON_CC_FLAGS", value)
    assert host.allowed_environment()["NEURON_CC_FLAGS"] == shown


def test_ranks_of_one_launch_share_a_run_id(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"MASTER_ADDR": "a", "MASTER_PORT": "1", "RANK": "3", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    third = host.rank_section("0-3")
    monkeypatch.setenv("RANK", "0")
    first = host.rank_section("0-3")
    assert (third["rank"], third["world_size"], third["rank_filter"]) == (3, 4, "0-3")
    assert third["run_id"] == first["run_id"] is not None
    monkeypatch.setenv("MASTER_PORT", "2")
    assert host.rank_section(None)["run_id"] != first["run_id"]
    monkeypatch.delenv("RANK")
    assert host.rank_section(None)["run_id"] is None


def test_outside_git_there_is_no_commit(tmp_path: Path) -> None:
    assert host.git_section(tmp_path) == {"commit": None, "is_dirty": None}


def test_absent_tools_and_packages_are_null(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert host.package_version("no-such-package-here") is None
    assert host.find_vendor_tool("no-such-tool") is None
    assert host.run_quietly(["no-such-tool"]) == ""
    assert host.run_quietly(["/bin/sleep", "5"], timeout_s=0.05) == ""
