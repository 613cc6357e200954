"""The published server library, deepseek-recipe 0.2.0, as a test-time tool.

Each script calls start(), which makes a virtual environment in the build folder, installs the
library there and runs the script again inside. Where that is impossible the reason is printed and
the exit status is 77, which ctest reports as skipped.
"""

import argparse
import json
import lzma
import os
import pathlib
import subprocess
import sys

PACKAGE = "deepseek-recipe==0.2.0"
MODEL = "DeepSeek-V4.1-Flash"
SKIPPED = 77
SOURCE = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = SOURCE / "tests" / "golden"
IMAGE = "<｜deepseek_image｜>"
SCHEMA = '{"name": "f", "description": "", "parameters": {}}'


def skip(reason):
    print("skipped: " + reason)
    sys.exit(SKIPPED)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver", required=True, help="the program chat_driver")
    parser.add_argument("--work", required=True, help="a folder for the environment and files")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20250117)
    return parser.parse_args()


def start():
    """The parsed arguments, inside the environment that has the library."""
    args = arguments()
    work = pathlib.Path(args.work)
    python = work / "venv" / "bin" / "python"
    if pathlib.Path(sys.prefix) != (work / "venv"):
        work.mkdir(parents=True, exist_ok=True)
        install(work, python)
        os.execv(python, [str(python)] + sys.argv)
    return args


def install(work, python):
    has = [str(python), "-c", "import deepseek_recipe as r; assert r.__version__ == '0.2.0'"]
    if python.exists() and subprocess.run(has, capture_output=True).returncode == 0:
        return
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", str(work / "venv")],
                          capture_output=True, text=True)
    if made.returncode != 0:
        skip("no virtual environment: " + last_line(made.stdout + made.stderr))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
           "--timeout", "20", "--retries", "1", PACKAGE]
    got = subprocess.run(pip, capture_output=True, text=True)
    if got.returncode != 0:
        skip(PACKAGE + " cannot be installed: " + last_line(got.stderr))
    works = subprocess.run(has, capture_output=True, text=True)
    if works.returncode != 0:
        skip(PACKAGE + " does not run here: " + last_line(works.stderr))


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no message"


class Library:
    """Renders and encodes as the library does, with the image token of the released tokenizer."""

    def __init__(self, tokenizer=None):
        import deepseek_recipe as recipe
        self.recipe = recipe
        tokens = recipe.SpecialTokens(image=IMAGE)
        self.options = recipe.ConversionOptions().with_special_tokens(tokens)
        self.encoding = recipe.DeepseekV41Encoding().with_special_tokens(tokens)
        if tokenizer is not None:
            self.encoding = self.encoding.with_tokenizer(recipe.Tokenizer.from_file(str(tokenizer)))

    def convert(self, request):
        """A converted request, or None and the words of the refusal."""
        body = json.dumps(dict(request, model=MODEL), ensure_ascii=False)
        try:
            return self.recipe.ChatCompletionRequest(body).convert(self.options), ""
        except self.recipe.ConversionError as error:
            if error.status_code != 400:
                raise
            return None, error.body
        except ValueError as error:
            return None, str(error)

    def render(self, converted):
        return self.encoding.render_conversation(converted.conversation)

    def ids(self, converted):
        return self.encoding.encode(converted.conversation)


def byte_ranges(prompt, ranges):
    """Ranges of characters as ranges of bytes."""
    out, at, byte = [], 0, 0
    for begin, end in ranges:
        byte += len(prompt[at:begin].encode())
        size = len(prompt[begin:end].encode())
        out.append([byte, byte + size])
        byte, at = byte + size, end
    return out


def tools_template(library):
    """The library's tools text in the form of encoding/tools_template.txt."""
    tool = {"type": "function", "function": {"name": "f"}}
    converted, _ = library.convert({"messages": [{"role": "user", "content": "x"}],
                                    "tools": [tool], "thinking": {"type": "disabled"}})
    prompt = library.render(converted).prompt
    block = prompt[prompt.index("## Tools"):prompt.index("<｜User｜>")]
    block = block.replace("{", "{{").replace("}", "}}")
    block = block.replace(SCHEMA.replace("{", "{{").replace("}", "}}"), "{tool_schemas}")
    for spelling, name in (("｜DSML｜", "{dsml_token}"), ("<think>", "{thinking_start_token}"),
                           ("</think>", "{thinking_end_token}")):
        block = block.replace(spelling, name)
    return block


def released_tokenizer(work):
    path = pathlib.Path(work) / "tokenizer.json"
    if not path.exists():
        packed = (GOLDEN / "tokenizer" / "tokenizer.json.xz").read_bytes()
        partial = path.with_suffix(".%d" % os.getpid())
        partial.write_bytes(lzma.decompress(packed))
        partial.rename(path)
    return path


def drive(args, jobs, template, tokenizer=None):
    """The driver's answers to the jobs."""
    path = pathlib.Path(args.work) / ("tools_template.%d.txt" % os.getpid())
    path.write_text(template, encoding="utf-8", newline="")
    command = [args.driver, str(path)] + ([str(tokenizer)] if tokenizer else [])
    lines = "".join(json.dumps(job, ensure_ascii=False) + "\n" for job in jobs)
    done = subprocess.run(command, input=lines.encode(), capture_output=True)
    path.unlink()
    if done.returncode != 0:
        sys.exit("the driver failed: status %d: %s" % (done.returncode, done.stderr.decode()))
    answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
    if len(answers) != len(jobs):
        sys.exit("the driver gave %d answers to %d jobs" % (len(answers), len(jobs)))
    return answers
