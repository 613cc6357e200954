"""The golden chat cases that offer tools, with the released tools text.

The text is not in the tree; the library has it, and tests/golden/chat/tools_template.json has the
digests of its two halves. With the right text each case has the recorded bytes, SHA-256 and ids.
"""

import hashlib
import json
import struct

import recipe


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def id_digest(ids):
    return sha256(struct.pack("<%di" % len(ids), *ids))


def check_halves(template, golden):
    """The digests prove that the template is the released text."""
    text = template
    for name, spelling in (("{dsml_token}", "｜DSML｜"), ("{thinking_start_token}", "<think>"),
                           ("{thinking_end_token}", "</think>"), ("{{", "{"), ("}}", "}")):
        text = text.replace(name, spelling)
    for half, name in zip(text.split("{tool_schemas}"), ("head", "tail")):
        data = half.encode()
        if len(data) != golden[name + "_bytes"] or sha256(data) != golden[name + "_sha256"]:
            recipe.skip("the library's tools text is not the released one (%s)" % name)


def faults(case, answer):
    prompt = answer["prompt"].encode()
    ids = answer["ids"]
    user = ids.index(128803)
    found = {"prompt_bytes": len(prompt), "prompt_sha256": sha256(prompt), "n_ids": len(ids),
             "ids_sha256": id_digest(ids), "ids_tail": ids[user:]}
    return ["%s: recorded %s, found %s" % (key, case[key], value)
            for key, value in found.items() if case[key] != value]


def main():
    args = recipe.start()
    golden = recipe.GOLDEN / "chat"
    cases = [json.loads(line) for line in (golden / "cases.jsonl").read_text().splitlines()]
    cases = [case for case in cases if "prompt_sha256" in case]
    template = recipe.tools_template(recipe.Library())
    check_halves(template, json.loads((golden / "tools_template.json").read_text()))
    tokenizer = recipe.released_tokenizer(args.work)
    jobs = [{"render": case["request"]} for case in cases]
    answers = recipe.drive(args, jobs, template, tokenizer)
    failed = 0
    for case, answer in zip(cases, answers):
        for fault in [answer["error"]] if "error" in answer else faults(case, answer):
            failed += 1
            print(case["name"] + ": " + fault)
    print("%d cases with the released tools text, %d faults" % (len(cases), failed))
    raise SystemExit(1 if failed or len(cases) != 46 else 0)


main()
