"""SIGTERM, with which schedulers stop a command."""

import math
import os
import signal

import pytest

from evalbias.commands.terminal import STOPPED
from evalbias.commands.termination import TERMINATED, stopped_by_sigterm


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture(autouse=True)
def _default():
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, before)


def test_sigterm_interrupts_once_and_decides_the_exit_code(monkeypatch):
    monkeypatch.setattr("evalbias.commands.termination.REPEATED", math.inf)

    def interrupted():
        with stopped_by_sigterm():
            with pytest.raises(KeyboardInterrupt):
                sigterm()
            sigterm()  # timeout(1) sends a second one, which must not cut the message short
            raise SystemExit(STOPPED)

    with pytest.raises(SystemExit) as stop:
        interrupted()
    assert stop.value.code == TERMINATED == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize("code", [0, 2])
def test_a_command_that_ends_by_itself_keeps_its_exit_code(code):
    with pytest.raises(SystemExit) as stop, stopped_by_sigterm():
        raise SystemExit(code)
    assert stop.value.code == code


def test_ctrl_c_keeps_its_exit_code():
    with pytest.raises(SystemExit) as stop, stopped_by_sigterm():
        raise SystemExit(STOPPED)
    assert stop.value.code == STOPPED


def test_a_later_sigterm_interrupts_again(monkeypatch):
    monkeypatch.setattr("evalbias.commands.termination.REPEATED", -1.0)
    with stopped_by_sigterm():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                sigterm()


def test_sigterm_stays_ignored_where_it_was():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with stopped_by_sigterm():
        sigterm()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN
