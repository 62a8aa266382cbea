"""Server dialects: one class in one file for each kind of server.

To add a dialect, write its file (start from ``TokenizedDialect``) and list the class here.
"""

from __future__ import annotations

from evalbias.lm.servers.dialects.base import Dialect
from evalbias.lm.servers.dialects.chat import Chat
from evalbias.lm.servers.dialects.decisions import Decisions
from evalbias.lm.servers.dialects.echo import Echo
from evalbias.lm.servers.dialects.llama_cpp import LlamaCpp
from evalbias.lm.servers.dialects.sglang import SGLang
from evalbias.lm.servers.dialects.systemone import SystemOne
from evalbias.lm.servers.dialects.vllm import VLLM

DIALECTS: tuple[type[Dialect], ...] = (
    VLLM,
    SGLang,
    LlamaCpp,
    Echo,
    Chat,
    SystemOne,
    Decisions,
)
"""All dialects, in the order in which they are tried."""
