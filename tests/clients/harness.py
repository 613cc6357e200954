"""What the tests of real clients share: pinned packages, servers on loopback, scripts of answers.

A client that cannot be installed here is no failure: the reason is printed and the exit status is
77, which ctest reports as skipped.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

SKIPPED = 77
SOURCE = pathlib.Path(__file__).resolve().parents[2]
MODEL = SOURCE / "models" / "fathom-34m"
PYTHON_LIBRARIES = ["openai==3.57.0", "anthropic==2.14.0"]


def skip(reason):
    print("skipped: " + reason)
    sys.exit(SKIPPED)


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--scripted", required=True, help="the program scripted_server")
    parser.add_argument("--fathom", required=True, help="the program fathom")
    parser.add_argument("--work", required=True, type=pathlib.Path, help="where packages go")
    args = parser.parse_args()
    args.work = args.work.resolve()
    return args


def marked(folder, packages):
    mark = folder / "packages"
    return mark.exists() and mark.read_text() == " ".join(packages)


def install(folder, packages, commands):
    """Runs the commands unless the folder has these packages already."""
    if marked(folder, packages):
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for command in commands:
        try:
            got = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        except OSError as error:
            skip("%s: %s" % (command[0], error))
        if got.returncode != 0:
            skip("%s cannot be installed: %s" % (", ".join(packages), last_line(got.stderr)))
    (folder / "packages").write_text(" ".join(packages))


def pip(args, name, packages):
    """The Python of an environment that has these packages."""
    folder = args.work / name
    python = folder / "venv" / "bin" / "python"
    install(folder, packages, [
        [sys.executable, "-m", "venv", str(folder / "venv")],
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--timeout", "20", "--retries", "1"] + packages])
    return python


def beside_libraries():
    """The arguments, where the Python libraries can be imported: inside their environment, in which
    this script is run again where it is not there yet."""
    args = arguments()
    python = pip(args, "python", PYTHON_LIBRARIES)
    if pathlib.Path(sys.prefix) != python.parents[1]:
        os.execv(python, [str(python)] + sys.argv)
    return args


def npm(args, name, packages):
    """The folder whose node_modules has these packages."""
    folder = args.work / name
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            skip("no " + program)
    install(folder, packages, [["npm", "install", "--no-audit", "--no-fund", "--loglevel=error",
                                "--prefix", str(folder)] + packages])
    return folder


@contextlib.contextmanager
def served(command, log, status=0):
    """The port of a server that is drained afterwards; its last line of output has to be right."""
    with open(log, "w") as errors:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
    first = server.stdout.readline()
    if "http://" not in first:
        server.wait()
        sys.exit("%s did not start: %s" % (command[0], pathlib.Path(log).read_text()))
    try:
        yield int(first.strip().rsplit(":", 1)[1])
    except BaseException:
        print("the server's log:\n" + pathlib.Path(log).read_text()[-3000:])
        raise
    finally:
        server.send_signal(signal.SIGTERM)
        rest, _ = server.communicate(timeout=60)
    check(server.returncode == status, "the server ended with %s" % server.returncode)
    if rest.strip():
        held = json.loads(rest)
        check(held["live"] == held["slots"] == held["pinned_blocks"] == held["error"] == 0,
              "the server still holds something, or lost an answer: " + rest)


def scripted(args, rules, name, context=262144):
    folder = args.work / "run"
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / (name + ".script")
    script.write_text(json.dumps(rules))
    return served([args.scripted, str(MODEL), "--script", str(script), "--context", str(context),
                   "--blocks", "32768"], folder / (name + ".log"))


def shipped(args, name):
    folder = args.work / "run"
    folder.mkdir(parents=True, exist_ok=True)
    return served([args.fathom, "serve", "--listen", "127.0.0.1:0", "--threads", "1"],
                  folder / (name + ".log"))


def check(holds, message):
    if not holds:
        sys.exit("failed: " + message)


def same(found, wanted, what):
    check(found == wanted, "%s: wanted %r, found %r" % (what, wanted, found))


def call(name, **arguments):
    """A call in the model's own syntax (spec/chat.md section 4)."""
    lines = ['<｜DSML｜ invoke name="%s">' % name]
    for key, value in arguments.items():
        text = value if isinstance(value, str) else json.dumps(value)
        lines.append('<｜DSML｜ parameter name="%s" string="%s">%s</｜DSML｜ parameter>' % (
            key, "true" if isinstance(value, str) else "false", text))
    return "\n".join(lines + ["</｜DSML｜ invoke>"])


def calls(*several):
    return "\n\n<｜DSML｜ calls>\n" + "\n".join(several) + "\n</｜DSML｜ calls>"
