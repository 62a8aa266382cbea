"""Commands behind a server that are killed, stopped and started twice, or whose disk is full: nothing is lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from fake_server import serving

from evalbias import embedded_judge_lm
from evalbias.data import world

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")]

ITEMS, IN_FLIGHT = 40, 4
START = """
import signal
from evalbias.cli.app import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # what nohup starts ignores it
main()
"""


class Site:
    """A folder with items, the server that judges them, and what an undisturbed run of a command asked and gave."""

    def __init__(self, folder, server, words, result, count):
        self.folder, (self.address, self.fake), self.words = folder, server, words
        self.result, self.count = result, count  # file that the command leaves, and how often it asks for a judgment
        rows = [{"source": e.source, "output": e.output} for e in world.examples(ITEMS, seed=1)]
        (folder / "items.json").write_text(json.dumps(rows))
        start = len(self.fake.requests)  # of other commands
        assert self.finished("whole").returncode == 0
        asked = self.asked(start)
        assert self.finished("whole").returncode == 0  # asks what opening the server takes
        once = {body for body in asked if asked.count(body) == 1} - set(self.asked(start + len(asked)))
        self.first, self.items = next(k for k, body in enumerate(asked) if body in once), once
        self.left = (folder / "whole" / result).read_bytes()
        assert len(self.items) == count

    def asked(self, since=0):
        return [json.dumps(body) for _, body in self.fake.requests[since:]]

    def start(self, out, *before):
        options = ["--criterion", "wit: is it witty?", "--data", "items.json", "--yes", "--out", out]
        server = ["--lm", self.fake.model, "--api-base", self.address, "--in-flight", IN_FLIGHT]
        command = [*before, sys.executable, "-c", START, *self.words, *map(str, [*server, *options])]
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "none"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    def finished(self, out, *before):
        with self.start(out, *before) as process:
            told = process.communicate()
        return SimpleNamespace(returncode=process.returncode, stdout=told[0], stderr=told[1])

    def after(self, requests, do):
        """Let a run's request about an item of that number do something before it is answered."""
        start = len(self.fake.requests)
        self.fake.faults = lambda n, *_: do() if n == start + self.first + requests else None

    def journal(self, out):
        return [json.loads(line) for line in (self.folder / out / "judgments.jsonl").read_text().splitlines()]

    def check(self, out, since, stops):
        """Check the result, and that at most what was in flight was asked again."""
        assert (self.folder / out / self.result).read_bytes() == self.left
        keys = [record["key"] for record in self.journal(out)]
        assert len(set(keys)) == len(keys) == self.count
        asked = sum(body in self.items for body in self.asked(since))
        assert self.count <= asked <= self.count + stops * IN_FLIGHT


@pytest.fixture(scope="module")
def server():
    with serving(embedded_judge_lm()) as (address, fake):
        fake.context = 4096
        yield address, fake


@pytest.fixture(scope="module")
def site(server, tmp_path_factory):
    return Site(tmp_path_factory.mktemp("site"), server, ["judge"], "scores.jsonl", ITEMS)


@pytest.fixture(scope="module")
def probing(server, tmp_path_factory):
    words = ["probe", "run", "--kind", "label", "--limit", "12"]  # each as it is, with the edit and with its placebo
    return Site(tmp_path_factory.mktemp("probing"), server, words, "result.json", 3 * 12)


STOPPED = [("site", "KILL", False), ("site", "INT", False), ("site", "INT", True), ("site", "TERM", True)]
STOPPED += [("site", "HUP", False), ("probing", "KILL", False), ("probing", "INT", False), ("probing", "TERM", True)]


@pytest.mark.parametrize(("command", "name", "repeated"), STOPPED)
def test_a_stopped_command_repeats_only_what_was_in_flight(command, name, repeated, request):
    site = request.getfixturevalue(command)
    number, out, since = getattr(signal, f"SIG{name}"), f"{name}-{repeated}", len(site.fake.requests)
    codes = [-number] if name == "KILL" else [128 + number]
    running = []

    def send():
        running[-1].send_signal(number)
        if repeated:  # until the process has ended
            threading.Thread(target=again, args=[running[-1]]).start()

    def again(process):
        while process.poll() is None:
            time.sleep(0.01)
            process.send_signal(number)

    for answered in (9, 14):
        site.after(answered, send)
        running.append(site.start(out))
        _, told = running[-1].communicate()
        assert running[-1].returncode in [*codes, -number]  # Python itself ends by the signal's default
        assert "Traceback" not in told
        assert name == "KILL" or "Stopped. The same command goes on from here" in told
    site.fake.faults = lambda *_: None
    kept = len(site.journal(out))
    assert kept >= 9 + 14 - 2 * IN_FLIGHT
    shown = site.finished(out)
    assert f"answers asked {site.count - kept}, replayed {kept}" in shown.stdout, shown.stderr
    site.check(out, since, stops=2)


def test_a_paused_command_keeps_its_folder(site):
    since = len(site.fake.requests)
    site.after(9, lambda: first.send_signal(signal.SIGSTOP))
    with site.start("paused") as first:
        assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
        second = site.finished("paused")
        first.send_signal(signal.SIGCONT)
        _, told = first.communicate()
    assert (second.returncode, first.returncode) == (2, 0), told
    assert f"Process {first.pid} works in paused" in second.stderr
    assert "vllm 9.9: choices and likelihoods" in told
    site.check("paused", since, stops=0)


def test_two_pid_namespaces_do_not_share_a_folder(site):
    apart = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], capture_output=True).returncode:
        pytest.skip("needs unshare and the right to make a PID namespace")
    since, begun, refused = len(site.fake.requests), threading.Event(), threading.Event()

    def hold():
        begun.set()
        return lambda answer: (refused.wait(120), answer)[1]

    site.after(9, hold)
    with site.start("apart", *apart) as first:
        try:
            assert begun.wait(120)
            second = site.finished("apart")
        finally:
            refused.set()
        _, told = first.communicate()
    assert (second.returncode, first.returncode) == (2, 0), told
    assert "works in apart" in second.stderr
    site.check("apart", since, stops=0)


def test_on_a_full_disk_what_fits_is_kept(site):
    disk = site.folder / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=20k", "tmpfs", str(disk)]
    if os.geteuid() or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a small disk")
    since = len(site.fake.requests)
    try:
        full = site.finished("disk/run")
        kept = len(site.journal("disk/run"))
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        resumed = site.finished("disk/run")
        site.check("disk/run", since, stops=1)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
    assert full.returncode == 2
    assert "No space left on device: disk/run/judgments.jsonl. Answers that could be written are kept" in full.stderr
    assert 9 <= kept < ITEMS
    assert f"answers asked {ITEMS - kept}, replayed {kept}" in resumed.stdout, resumed.stderr
