"""Signals that stop a command: Ctrl-C, SIGTERM of schedulers, SIGHUP of a lost connection."""

import math
import os
import signal
import sys

import pytest

from evalbias.cli import app as termination
from evalbias.cli.app import SIGNALS, stopped_by_signals
from evalbias.cli.terminal import STOPPED

USUAL = {number: signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL for number in SIGNALS}


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGHUP")
def test_ctrl_c_and_the_signals_of_schedulers_and_lost_connections_are_handled():
    assert SIGNALS == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def send(number):
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def _usual():
    before = {number: signal.signal(number, handler) for number, handler in USUAL.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def handlers():
    return {number: signal.getsignal(number) for number in SIGNALS}


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("told", [True, False])
def test_a_signal_interrupts_once_and_decides_the_exit_code(monkeypatch, number, told):
    monkeypatch.setattr("evalbias.cli.app.REPEATED", math.inf)

    def interrupted():
        with stopped_by_signals():
            try:
                send(number)
            except KeyboardInterrupt:
                send(number)  # timeout(1) sends a second one, which must not cut short what is kept and said
                if told:
                    raise SystemExit(STOPPED) from None
                raise

    with pytest.raises(SystemExit) as stop:
        interrupted()
    assert stop.value.code == 128 + number
    ended = []
    monkeypatch.setattr(termination.os, "_exit", ended.append)
    send(number)  # while the process ends: without a traceback
    assert ended == [128 + number]


@pytest.mark.parametrize("code", [0, 1, 2, STOPPED])
def test_a_command_that_ends_by_itself_keeps_its_exit_code(code):
    with pytest.raises(SystemExit) as stop, stopped_by_signals():
        raise SystemExit(code)
    assert stop.value.code == code
    assert handlers() == USUAL


@pytest.mark.parametrize("number", SIGNALS)
def test_a_later_signal_interrupts_again_and_an_ignored_one_stays_so(monkeypatch, number):
    monkeypatch.setattr("evalbias.cli.app.REPEATED", -1.0)
    with stopped_by_signals():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                send(number)
    assert handlers() == USUAL
    signal.signal(number, signal.SIG_IGN)  # as SIGHUP under nohup
    with stopped_by_signals():
        send(number)
    assert signal.getsignal(number) == signal.SIG_IGN
