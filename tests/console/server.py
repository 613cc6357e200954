"""A `fathom serve` of its own, and plain requests to it."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request


class Server:
    def __init__(self, binary, arguments, key=None):
        environment = dict(os.environ)
        environment.pop("FATHOM_API_KEY", None)
        if key:
            environment["FATHOM_API_KEY"] = key
        self.key = key
        self.process = subprocess.Popen(
            [binary, "serve", "--listen", "127.0.0.1:0", "--quiet"] + arguments,
            stdout=subprocess.PIPE, text=True, env=environment)
        line = self.process.stdout.readline()
        found = re.search(r"at (http://127\.0\.0\.1:\d+)", line)
        if not found:
            raise RuntimeError("serve: wanted an address, found " + repr(line))
        self.address = found.group(1)

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.process.stdout.close()

    def ask(self, path, body=None):
        """Status and JSON of an answer."""
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = "Bearer " + self.key
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    def state(self):
        return self.ask("/console/state")[1]
