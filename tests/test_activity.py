"""Which events a definition covers."""

from __future__ import annotations

import pytest

from tests.metrics.build import event, inputs
from tracekit import activity


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("python", "torch/_dynamo/convert_frame.py(1633): _compile"),
        ("python", "/opt/venv/lib/python3.11/site-packages/torch/_inductor/compile_fx.py(788): compile_fx_inner"),
        ("python", "torch/_inductor/compile_fx.py(1500): fx_codegen_and_compile"),
        ("python", "libneuronxla/libncc.py(55): neuron_xla_compile"),
        ("python", "neuronxcc/driver/CommandDriver.py(270): run"),
        ("python", "triton/compiler/compiler.py(220): compile"),
        ("op", "_compile.compile_inner (dynamo_timed)"),
        ("annotation", "neuronx-cc"),
        ("op", "neuron::compile"),
        ("op", "XlaCompile"),
        ("annotation", "compile the model"),
    ],
)
def test_compilations(kind: str, name: str) -> None:
    rows = inputs([event(kind, 0, 1, lane="dispatch", name=name)]).events
    assert activity.compilations(rows).collect().height == 1


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("python", "re/__init__.py(225): compile"),
        ("python", "re/_compiler.py(740): compile"),
        ("python", "<built-in function compile>"),
        ("python", "vllm/config/compilation.py(90): valid_runtime_modes"),
        ("python", "vllm/compilation/cuda_graph.py(30): __call__"),
        ("python", "torch/compiler/__init__.py(1): is_compiling"),
        ("python", "torch/_inductor/compile_fx.py(1050): run"),
        ("python", "torch/_dynamo/convert_frame.py(1): __call__"),
        ("op", "CompiledFunction"),
        ("op", "Torch-Compiled Region: 0/0"),
    ],
)
def test_what_only_sounds_like_a_compilation(kind: str, name: str) -> None:
    rows = inputs([event(kind, 0, 1, lane="dispatch", name=name)]).events
    assert activity.compilations(rows).collect().is_empty()
