"""What the tests of agents share: a task of three turns in a folder of two files.

The model is scripted: it asks the agent's own shell tool to list the folder, then to show one file,
then answers. The file holds a word drawn anew in each run, and the model goes on only after it saw
what the tool printed, so that the last answer proves that the agent ran both commands and sent
their output back. Agent and server run in a network namespace that has loopback alone: nothing an
agent sends can leave the machine, whatever its settings are.
"""

import fcntl
import os
import pathlib
import secrets
import shutil
import socket
import struct
import subprocess
import sys
import tempfile

import harness

TASK = "Find out which word the lantern file holds."
FILES = ("harbour.txt", "lantern.txt")


class Task:
    def __init__(self, args, name, shell, end=None):
        """`shell(command)` gives name and arguments of the agent's shell tool; `end(answer)` the
        command that hands an answer in, for an agent that wants one."""
        self.args, self.name, self.shell, self.end = args, name, shell, end
        self.word = "word-" + secrets.token_hex(8)
        self.answer = "The lantern file holds %s." % self.word
        # Not below this repository, whose files an agent would take for its project's.
        self.holder = tempfile.TemporaryDirectory(prefix="fathom-agent-")
        self.home = pathlib.Path(self.holder.name)
        self.folder = self.home / "task"
        self.write("task/" + FILES[0], "nothing\n")
        self.write("task/" + FILES[1], self.word + "\n")

    def write(self, name, text):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def shell_call(self, command):
        name, arguments = self.shell(command)
        return harness.calls(harness.call(name, **arguments))

    def rules(self):
        last = self.shell_call(self.end(self.answer)) if self.end else self.answer
        return [{"when": [self.word], "thinking": "That is the word.", "answer": last},
                {"when": list(FILES), "thinking": "The second one.",
                 "answer": self.shell_call("cat " + FILES[1])},
                {"when": [TASK], "thinking": "I list the folder first.",
                 "answer": self.shell_call("ls")},
                # What agents ask beside the task: titles, summaries.
                {"answer": "A word in a file"}]

    def run(self, command, environment_of):
        """Runs the agent with what `environment_of(url)` sets; its output must hold the answer."""
        with harness.scripted(self.args, self.rules(), self.name) as port:
            environment = {"HOME": str(self.home), "PATH": os.environ["PATH"], "NO_COLOR": "1",
                           "LANG": "C.UTF-8", "TERM": "dumb",
                           **environment_of("http://127.0.0.1:%d" % port)}
            done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True,
                                  text=True, timeout=240, stdin=subprocess.DEVNULL)
            output = done.stdout + done.stderr
            harness.check(done.returncode == 0 and self.answer in output,
                          "%s ended with %d; wanted the answer %r in what it printed:\n%s" % (
                              self.name, done.returncode, self.answer, output[-4000:]))
        print("%s: ran two commands and answered" % self.name)


def from_npm(name, package, program, shell):
    """The task, and the path of the program, of an agent that is a package of npm."""
    args = harness.arguments()
    folder = harness.npm(args, name, [package])
    isolated()
    return Task(args, name, shell), str(folder / "node_modules" / ".bin" / program)


def isolated():
    """Goes on in a network namespace with loopback alone."""
    if os.environ.get("FATHOM_TEST_ISOLATED") == "1":
        raise_loopback()
        return
    if shutil.which("unshare") is None:
        harness.skip("no unshare, so that nothing would keep the agent off the network")
    tried = subprocess.run(["unshare", "--map-root-user", "--net", "true"], capture_output=True,
                           text=True)
    if tried.returncode != 0:
        harness.skip("no network namespace: " + harness.last_line(tried.stderr))
    environment = dict(os.environ, FATHOM_TEST_ISOLATED="1")
    os.execvpe("unshare", ["unshare", "--map-root-user", "--net", sys.executable] + sys.argv,
               environment)


def raise_loopback():
    """SIOCSIFFLAGS with IFF_UP on lo; then checks that nothing else is there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, 0x8914, struct.pack("16sH14s", b"lo", 1, b""))
    names = [name for _, name in socket.if_nameindex()]
    harness.same(names, ["lo"], "network interfaces of the agent")
