"""The JavaScript libraries of OpenAI and Anthropic: starts the servers, runs javascript.mjs."""

import json
import subprocess

import conversation as talk
import harness

PACKAGES = ["openai@7.59.0", "@anthropic-ai/sdk@1.14.0"]


def expected():
    """What conversation.py knows, for the other language."""
    steps = []
    for step in range(1, talk.STEPS + 1):
        wanted = talk.wanted_calls(step)
        steps.append({"thinking": talk.thought(step), "text": talk.said(step), "calls": wanted,
                      "results": [talk.result(arguments) for arguments in wanted]})
    steps.append({"thinking": talk.thought(talk.STEPS + 1), "text": talk.ANSWER, "calls": [],
                  "results": []})
    return {"question": talk.QUESTION, "tool": talk.TOOL, "description": talk.DESCRIPTION,
            "schema": talk.SCHEMA, "steps": steps}


def main():
    args = harness.arguments()
    folder = harness.npm(args, "js", PACKAGES)
    run = args.work / "run"
    run.mkdir(parents=True, exist_ok=True)
    (run / "expected.json").write_text(json.dumps(expected()))
    # Node looks for packages beside the file.
    program = folder / "javascript.mjs"
    program.write_text((harness.SOURCE / "tests" / "clients" / "javascript.mjs").read_text())
    rules = talk.rules() + [{"when": "Once", "answer": "upon a time"}]
    with harness.scripted(args, rules, "javascript") as scripted:
        with harness.shipped(args, "javascript_shipped") as shipped:
            done = subprocess.run(["node", str(program), str(run / "expected.json"),
                                   str(scripted), str(shipped)], capture_output=True, text=True,
                                  timeout=300)
            harness.check(done.returncode == 0, done.stdout + done.stderr)
    print(done.stdout.strip())


main()
