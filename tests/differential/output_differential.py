"""Random model outputs: fathom's streaming parser against the library's.

Goal: the same reasoning, content, calls, argument texts and finish reason. Method: seeded outputs
from well-formed pieces, broken pieces and plain text, under random settings. The library gets each
text in random pieces, fathom at once. In JSON mode runs of spaces count as one, because the library
writes as many as the text was cut into. Where a parameter opens in an unusual way the library 0.2.0
garbles its key and may lose its place, so there the calls are left out of the comparison.
"""

import json
import random
import re

import recipe

WORDS = ["\n", "\n\n", "</think>", "<think>", "<", "</", "<｜DSML｜", "</｜DSML｜", "｜DSML｜",
         " calls>", "tool_calls>", " invoke name=\"", "f\"", ">", "true\">", "false\">", "x",
         "\"", "\\", "é",
         "```json\n", "```\n", "\n```", "{", "[", "}", "STOP", "ST", "invoke", "丙", "\r\n", " ",
         "｜",
         "</｜DSML｜ calls>", "</｜DSML｜ invoke>", "</｜DSML｜ parameter>", "<｜DSML｜ calls>\n"]
OPENING = re.compile(r'parameter name=(?:"([^"]*)"( string="(?:true|false)">)?)?')
SIMPLE_KEY = re.compile(r"[A-Za-z0-9_名]+\Z")
STAGES = {"reasoning": "ReasoningStart", "reasoning_continued": "ReasoningContinuation",
          "content_continued": "ContentContinuation"}
FINISHES = {"stop": "Stop", "length": "Length", "content_filter": "ContentFilter"}


def words(rng, most):
    return "".join(rng.choice(WORDS) for _ in range(rng.randint(0, most)))


def prose(rng):
    return rng.choice(["", "ok", "Let me look.", "a < b", "line\nline\n", "潮汐 丙", "\n\nHi",
                       "STOP it", "Sure: {\"a\": [1, 2]} done", "```json\n{\"a\": 1}\n```\n"
                       ]) + words(rng, 2)


def parameter(rng, space):
    key = rng.choice(["a", "b_1", "名", "harbour"])
    value = rng.choice(["Brest", "2", "", "{\"k\": [1]}", "a < b </x>", "say \"hi\" \\",
                        "\x01\t\x7f",
                        "two\nlines\n", "</｜DSML b", "true", words(rng, 2)])
    return '<｜DSML｜%sparameter name="%s" string="%s">%s</｜DSML｜%sparameter>\n' % (
        space, key, rng.choice(["true", "false"]), value, space)


def call(rng, space):
    body = "".join(parameter(rng, space) for _ in range(rng.randint(0, 3)))
    return '<｜DSML｜%sinvoke name="%s">\n%s</｜DSML｜%sinvoke>\n' % (
        space, rng.choice(["f", "get_tide", "a-b", ""]), body or "\n", space)


def block(rng):
    space, wrapper = (" ", " calls") if rng.random() < 0.8 else ("", "tool_calls")
    calls = "".join(call(rng, space) for _ in range(rng.randint(0, 3)))
    return "\n\n<｜DSML｜%s>\n%s</｜DSML｜%s>" % (wrapper, calls, wrapper)


def output(rng):
    text = prose(rng) + rng.choice(["</think>", "\n</think>\n\n", ""]) + prose(rng)
    if rng.random() < 0.7:
        text += block(rng)
    text += rng.choice(["", "", prose(rng)])
    for _ in range(rng.choice([0, 0, 0, 1, 2])):  # broken somewhere
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(WORDS + [""]) + text[at + rng.randint(0, 3):]
    if rng.random() < 0.2:
        text = text[:rng.randint(0, len(text))]
    return text


def job(rng):
    start = rng.choice(["content", "reasoning", "reasoning", "content_continued",
                        "reasoning_continued", "calls"])
    return {"text": output(rng), "start": start, "tools": start == "calls" or rng.random() < 0.8,
            "json_mode": rng.random() < 0.15,
            "stop": rng.choice([[], [], ["STOP"], ["丙", "\n<"], ["abac", "it"]]),
            "finish": rng.choice(["stop", "stop", "stop", "length", "content_filter"])}


def library_result(recipe_module, rng, job_):
    request = {"model": recipe.MODEL, "messages": [{"role": "user", "content": "json"}],
               "thinking": {"type": "enabled" if "reasoning" in job_["start"] else "disabled"}}
    converted = recipe_module.ChatCompletionRequest(json.dumps(request)).convert(
        recipe_module.ConversionOptions())
    stage = STAGES.get(job_["start"])
    options = recipe_module.ParsingOptions(
        parse_tool_calls=job_["tools"], starts_in_tool_calls=job_["start"] == "calls",
        parse_json_output=job_["json_mode"], stop_sequences=job_["stop"],
        thinking_initial_stage=stage and getattr(recipe_module.ThinkingInitialStage, stage))
    generator = recipe_module.ChatCompletionRequest.chunk_generator(converted, "id", "m")
    processor = recipe_module.StreamProcessor(generator, options)
    chunk = recipe_module.InferenceChunk
    events, text = processor.push(chunk.ready()), job_["text"]
    while text and not processor.finished:
        size = rng.randint(1, 6)
        events += processor.push(chunk.text(text[:size], 1))
        text = text[size:]
    if not processor.finished:
        reason = getattr(recipe_module.InferenceFinishReason, FINISHES[job_["finish"]])
        events += processor.push(chunk.finish(reason))
    return collect(events + processor.finish())


def collect(events):
    result = {"reasoning": "", "content": "", "tool_calls": [], "finish_reason": None}
    for event in events:
        for choice in json.loads(event.to_json())["choices"]:
            delta = choice["delta"]
            result["content"] += delta.get("content") or ""
            result["reasoning"] += delta.get("reasoning_content") or ""
            for piece in delta.get("tool_calls") or []:
                if piece["index"] == len(result["tool_calls"]):
                    result["tool_calls"].append({"name": "", "arguments": ""})
                into = result["tool_calls"][piece["index"]]
                into["name"] += piece["function"].get("name") or ""
                into["arguments"] += piece["function"].get("arguments") or ""
            result["finish_reason"] = choice.get("finish_reason") or result["finish_reason"]
    return result


def usual_parameters(text):
    return all(SIMPLE_KEY.match(key) and flag for key, flag in OPENING.findall(text))


def comparable(result, job_):
    result = json.loads(json.dumps(result))
    result["reasoning"] = result["reasoning"] or ""
    if job_["json_mode"]:
        result["content"] = re.sub(" +", " ", result["content"])
    if not usual_parameters(job_["text"]):
        result["tool_calls"] = []
    return result


def main():
    args = recipe.start()
    import deepseek_recipe as recipe_module
    rng = random.Random(args.seed)
    jobs = [job(rng) for _ in range(args.count)]
    answers = recipe.drive(args, [{"parse": job_} for job_ in jobs],
                           recipe.tools_template(recipe.Library()))
    differences = with_calls = left_out = 0
    for index, (job_, answer) in enumerate(zip(jobs, answers)):
        wanted = library_result(recipe_module, rng, job_)
        with_calls += bool(wanted["tool_calls"])
        left_out += bool(wanted["tool_calls"]) and not usual_parameters(job_["text"])
        if comparable(wanted, job_) != comparable(answer, job_):
            differences += 1
            if differences <= 10:
                print("output %d: %s\n  library %s\n  fathom  %s" % (
                    index, json.dumps(job_, ensure_ascii=False), wanted, answer))
    print("seed %d: %d outputs, %d with calls (not compared in %d), %d differences" % (
        args.seed, len(jobs), with_calls, left_out, differences))
    raise SystemExit(1 if differences else 0)


if __name__ == "__main__":
    main()
