"""`regard explore`: what it cannot serve it says in a sentence; what it serves is there until Ctrl-C."""

import re
import signal
import socket
import subprocess
import sys
from http.client import HTTPConnection

import pytest

pytest.importorskip("uvicorn")


def test_what_cannot_be_served_is_said_in_a_sentence(call, model, tmp_path):
    assert "is not a folder" in call("explore", tmp_path / "nowhere", "--no-browser").err
    assert "is named twice" in call("explore", model, model, "--no-browser").err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        answer = call("explore", model, "--port", taken.getsockname()[1], "--no-browser")
    assert (answer.code, answer.out) == (1, "")
    assert "is taken" in answer.err


def test_the_page_is_there_until_it_is_stopped(model):
    command = [sys.executable, "-m", "regard", "explore", str(model), "--port", "0", "--no-browser"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        place = re.search(r"http://([\d.:]+)/ ", running.stdout.readline())
        connection = HTTPConnection(place[1], timeout=60)
        connection.request("GET", "/")
        assert b"explorer/main.js" in connection.getresponse().read()
        connection.close()
        running.send_signal(signal.SIGINT)
        _, problems = running.communicate(timeout=60)
    finally:
        running.kill()
    assert (running.returncode, problems) == (0, "")
