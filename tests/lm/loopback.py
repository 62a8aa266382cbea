"""Servers on this machine: a handler of requests is all that one has to write."""

import json
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Server(ThreadingHTTPServer):
    """A server that many connections reach at once: of those that find the queue full, some wait for seconds."""

    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, request, client_address):
        """Say nothing of clients that left, which may be long after their test."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """Reads requests and sends answers; a subclass writes ``reply``."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.reply({})

    def do_POST(self):
        self.reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def send(self, status, content, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def hang_up(self):
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_):
        pass


@contextmanager
def listening(handler):
    """Yield the address at which requests get to a handler."""
    server = Server(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()  # looks for the end that often
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
