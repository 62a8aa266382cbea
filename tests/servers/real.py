"""Real servers of one small model, each in the environment that ``make test-servers`` made for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import torch
from models import TEMPLATE, TEXTS
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SERVERS = Path(__file__).parent.parent.parent / ".servers"
HERE = Path(__file__).parent
EXACT = {
    "server": ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"],
    "python": ["--type_k", "0", "--type_v", "0"],
}
"""llama.cpp keeps its keys and values in 16 bits otherwise, which costs .01 nats."""

LIMIT = 300
"""Seconds until a server must answer."""


def save_model(folder: Path, *, layers: int = 2, width: int = 128) -> Path:
    """A random Llama that every server can run: heads of 64 numbers, a start token, a byte-level tokenizer."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    fast.chat_template = TEMPLATE.replace("{{ bos_token if bos_token else '' }}", "<s>")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=1,
        max_position_embeddings=512,
        bos_token_id=0,
        eos_token_id=1,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # random weights of the usual size give nearly uniform answers
    model.eval().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def gguf_of(folder: Path) -> Path:
    """The same model for llama.cpp."""
    file = folder.with_suffix(".gguf")
    subprocess.run([SERVERS / "llama/bin/python", HERE / "gguf_model.py", folder, file], check=True)
    return file


@contextmanager
def vllm(folder: Path, *options: str):
    """A vLLM server on the CPU; yields its address and its process."""
    command = [SERVERS / "vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server", "--model", folder]
    command += ["--served-model-name", "tiny", "--dtype", "float32", "--max-model-len", "512", "--max-num-seqs", "64"]
    environment = {"VLLM_CPU_KVCACHE_SPACE": "2", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with serving([*command, *options], environment) as started:
        yield started


@contextmanager
def llama_server(folder: Path):
    """llama.cpp's own server."""
    command = [SERVERS / "llama/bin/llama-server", "--model", gguf_of(folder), "--alias", "tiny", "--ctx-size", "2048"]
    with serving([*command, "--parallel", "4", *EXACT["server"]], {}) as started:
        yield started


@contextmanager
def llama_cpp_python(folder: Path):
    """llama-cpp-python's server."""
    command = [SERVERS / "llama/bin/python", "-m", "llama_cpp.server", "--model", gguf_of(folder)]
    with serving(
        [*command, "--model_alias", "tiny", "--n_ctx", "512", "--logits_all", "true", *EXACT["python"]], {}
    ) as started:
        yield started


@contextmanager
def serving(command, environment):
    """Start a server on a free port of the loopback and wait until it lists its model."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}/v1"
    log = (SERVERS / f"log-{port}.txt").open("w")
    process = subprocess.Popen(
        [*map(str, command), "--host", "127.0.0.1", "--port", str(port)],
        env={**os.environ, **environment},
        stdout=log,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        wait(address, process, log.name)
        yield address, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        log.close()


def wait(address, process, log):
    """Until the server answers."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        assert process.poll() is None, f"the server stopped: {Path(log).read_text()[-3000:]}"
        try:
            with urllib.request.urlopen(f"{address}/models", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(f"no answer in {LIMIT} s: {Path(log).read_text()[-3000:]}")
