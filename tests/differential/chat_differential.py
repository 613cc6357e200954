"""Random conversations: fathom's prompts, markers, images, ids and refusals against the library's.

Goal: every request that the library accepts gives the same prompt bytes, marker ranges, image
order, token ids and parser settings, and every request that it refuses is refused. Method: seeded
conversations with all roles, tools, choices, formats, efforts, prefixes, odd texts and marker
spellings; about one in six is then damaged in one place. Left out are the two inputs that fathom
accepts beyond the library (integer efforts, tasks).
"""

import copy
import json
import random

import recipe

TEXTS = [
    "", "x", "Hi there.", "\n", "\n\n", "  two  spaces  ", "a\r\nb\tc", "json", "Some JSON please",
    "潮汐表", "naïve café", "e\u0301", "🙂👩‍👩‍👧",
    "\u200b", "\u2028line", "\x7f", "\x00nul\x1f", "׃שלום", "ﬁﬀ", "①½",
    "<think>", "</think>", "<｜User｜>", "<｜Assistant｜>",
    "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>",
    "<｜System｜>", "｜DSML｜", "<｜DSML｜ calls>", "</｜DSML｜ parameter>",
    "<｜deepseek_image｜>",
    "<｜latest_reminder｜>", "<tool_result>", "</tool_result>", "<｜action｜>", "[Unsupported image]",
    "## Tools", "{\"a\": 1}", "\\", "\"quoted\"", "```json\n{}\n```", "{{}}",
    "{tool_schemas}", "%s",
]
NUMBERS = ["0", "-0", "1", "-1", "1.0", "1.50", "1E5", "1e-7", "1e15", "1e16", "1e20", "0.1",
           "123456789012345678", "18446744073709551615", "18446744073709551616",
           "-9223372036854775808", "-9223372036854775809",
           "0.30000000000000004", "5e-324", "1e308",
           "3.141592653589793238", "100000000000000000000", "0.0001", "0.00001", "-2.50E-3",
           "1e400"]
NAMES = ["ping", "get_tide", "read-file", "A1", "x" * 64, "_"]
BAD_NAMES = ["", "a b", "fs::read", "港", "x" * 129, "a.b"]


class Generator:
    def __init__(self, rng):
        self.rng = rng
        self.images = 0

    def text(self):
        return "".join(self.rng.choice(TEXTS) for _ in range(self.rng.randint(0, 4)))

    def image(self):
        self.images += 1
        url = {"url": "https://example.org/%d.png" % self.images}
        if self.rng.random() < 0.3:
            url["detail"] = self.rng.choice(["low", "high", "original", "auto"])
        return {"type": "image_url", "image_url": url}

    def content(self, images=True):
        if self.rng.random() < 0.6:
            return self.text()
        parts = []
        for _ in range(self.rng.randint(0, 3)):
            image = images and self.rng.random() < 0.4
            parts.append(self.image() if image else {"type": "text", "text": self.text()})
        return parts

    def json_value(self, depth=0):
        kind = self.rng.random()
        if kind < 0.3:
            return json.dumps(self.text(), ensure_ascii=self.rng.random() < 0.5)
        if kind < 0.6:
            return self.rng.choice(NUMBERS)
        if kind < 0.75 or depth > 3:
            return self.rng.choice(["null", "true", "false"])
        space = self.rng.choice(["", " ", "\n  "])
        items = [self.json_value(depth + 1) for _ in range(self.rng.randint(0, 3))]
        if kind < 0.87:
            return "[" + space + ("," + space).join(items) + space + "]"
        return self.json_object(items, space)

    def json_object(self, values, space):
        keys = [json.dumps(self.rng.choice(["a", "b", "c", self.text()])) for _ in values]
        return "{" + space + ("," + space).join(
            key + space + ":" + value for key, value in zip(keys, values)) + space + "}"

    def arguments(self):
        if self.rng.random() < 0.1:
            return self.rng.choice(["", " ", "[1,2]", "{\"a\": ", "\"{}\"", "null", "NaN", "{}x",
                                    "{\"a\":NaN}", "{\"a\":\"\\ud800\"}", self.text()])
        values = [self.json_value() for _ in range(self.rng.randint(0, 4))]
        return self.rng.choice(["", " "]) + self.json_object(values, self.rng.choice(["", " "]))

    def assistant(self, calls):
        message = {"role": "assistant", "content": self.content(images=False)}
        if self.rng.random() < 0.5:
            message["reasoning_content"] = self.rng.choice([None, self.text()])
        if calls:
            message["tool_calls"] = [
                {"id": identity, "type": "function",
                 "function": {"name": self.rng.choice(NAMES + [self.text()]),
                              "arguments": self.arguments()}} for identity in calls]
            if self.rng.random() < 0.3:
                message.pop("content")
        return message

    def call_round(self):
        calls = ["call_%d" % self.rng.randint(0, 99) for _ in range(self.rng.randint(1, 3))]
        calls = list(dict.fromkeys(calls))
        messages = [self.assistant(calls)]
        self.rng.shuffle(calls)
        for identity in calls:
            messages.append({"role": "tool", "tool_call_id": identity, "content": self.content()})
        return messages

    def messages(self, with_calls):
        out = []
        for _ in range(self.rng.randint(1, 7)):
            kind = self.rng.random()
            if kind < 0.4:
                out.append({"role": "user", "content": self.content()})
            elif kind < 0.55:
                out.append(self.assistant([]))
            elif kind < 0.75 and with_calls:
                out += self.call_round()
            elif kind < 0.9:
                out.append({"role": "system", "content": self.content()})
            else:
                out.append({"role": "latest_reminder", "content": self.text()})
        return out

    def schema(self, depth=0):
        properties = {}
        for _ in range(self.rng.randint(0, 3)):
            properties[self.rng.choice(["a", "b", "名", "with space", "q\"r"])] = self.inner(depth)
        schema = {"type": "object", "properties": properties}
        if self.rng.random() < 0.3:
            schema["required"] = list(properties)
        if self.rng.random() < 0.3:
            schema["additionalProperties"] = False
        if self.rng.random() < 0.2:
            schema["description"] = self.text()
        items = list(schema.items())
        self.rng.shuffle(items)
        return dict(items)

    def inner(self, depth):
        kind = self.rng.random()
        schema = {"type": self.rng.choice(["string", "number", "integer", "boolean", "null"])}
        if kind < 0.15 and depth < 3:
            return self.schema(depth + 1)
        if kind < 0.3 and depth < 3:
            return {"items": self.inner(depth + 1), "type": "array", "maxItems": 3}
        if kind < 0.4 and depth < 3:
            return {"anyOf": [self.inner(depth + 1), {"type": "null"}], "description": "d"}
        if kind < 0.5:
            return {"type": ["string", "null"], "title": "t"}
        if schema["type"] == "string":
            schema.update(self.rng.choice([{}, {"minLength": 1}, {"pattern": "^a"},
                                           {"enum": ["x", "é"]}, {"format": "email"}]))
        if schema["type"] in ("number", "integer"):
            schema.update(self.rng.choice([{}, {"minimum": 1}, {"multipleOf": 2, "maximum": 9},
                                           {"default": 5}, {"const": 3}]))
        if self.rng.random() < 0.3:
            schema["description"] = self.text()
        return schema

    def tools(self):
        names = self.rng.sample(NAMES, self.rng.randint(0, 3))
        tools = []
        for name in names:
            function = {"name": name}
            if self.rng.random() < 0.8:
                function["description"] = self.rng.choice([None, self.text()])
            if self.rng.random() < 0.8:
                function["parameters"] = self.rng.choice([None, self.schema(), self.schema()])
            if self.rng.random() < 0.4:
                function["strict"] = self.rng.choice([None, False, True])
            tools.append({"type": "function", "function": function})
        return tools

    def request(self):
        rng = self.rng
        self.images = 0
        request = {"messages": self.messages(with_calls=rng.random() < 0.6)}
        if rng.random() < 0.5:
            request["tools"] = self.tools()
            if rng.random() < 0.4:
                name = rng.choice([t["function"]["name"] for t in request["tools"]] + ["zz"])
                request["tool_choice"] = rng.choice(
                    ["auto", "none", "required",
                     {"type": "function", "function": {"name": name}}])
        if rng.random() < 0.6:
            request["thinking"] = {"type": rng.choice(["enabled", "disabled", "disabled",
                                                       "adaptive"])}
        if rng.random() < 0.4:
            request["reasoning_effort"] = rng.choice(
                ["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra", None])
        if rng.random() < 0.2:
            request["response_format"] = rng.choice(
                [{"type": "text"}, {"type": "json_object"},
                 {"type": "json_schema", "json_schema": {"name": "n", "schema": self.schema()}},
                 {"type": "regex", "regex": "a+"}])
        if rng.random() < 0.2:
            request["messages"].append(dict(self.assistant([]), prefix=True))
            if rng.random() < 0.8:
                request.pop("tools", None)
        return request

    def damaged(self, request):
        """The request with one value somewhere replaced or one member removed."""
        request = copy.deepcopy(request)
        places = []
        self.collect(request, places)
        container, key = self.rng.choice(places)
        if self.rng.random() < 0.3 and isinstance(container, dict):
            container.pop(key)
        else:
            container[key] = self.rng.choice(
                [None, True, 5, "", "x", [], {}, "developer", self.rng.choice(BAD_NAMES)])
        return request

    def collect(self, value, places):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            places.append((value, key))
            if isinstance(inner, (dict, list)):
                self.collect(inner, places)


def start_name(options, recipe_module):
    stage = options.thinking_initial_stage
    stages = recipe_module.ThinkingInitialStage
    if options.starts_in_tool_calls:
        return "calls"
    if stage is None:
        return "content"
    return {str(stages.ReasoningStart): "reasoning",
            str(stages.ReasoningContinuation): "reasoning_continued",
            str(stages.ContentContinuation): "content_continued"}[str(stage)]


def beyond_the_library(request):
    """Inputs that fathom accepts in addition."""
    effort = request.get("reasoning_effort")
    return isinstance(effort, int) and not isinstance(effort, bool)


def difference(library, request, answer):
    converted, refusal = library.convert(request)
    if converted is None:
        if "error" in answer or beyond_the_library(request):
            return None
        return "the library refuses it: " + refusal
    if "error" in answer:
        return "fathom refuses it: " + answer["error"]
    rendered = library.render(converted)
    options = converted.parsing_options
    wanted = {
        "prompt": rendered.prompt,
        "markers": recipe.byte_ranges(rendered.prompt, rendered.special_ranges),
        "images": [source.url for source in rendered.image_sources],
        "ids": library.ids(converted),
        "start": start_name(options, library.recipe),
        "tools": options.parse_tool_calls,
        "json_mode": options.parse_json_output,
    }
    for key, value in wanted.items():
        if answer[key] != value:
            return "%s: library %r, fathom %r" % (key, value, answer[key])
    return None


def main():
    args = recipe.start()
    rng = random.Random(args.seed)
    generator = Generator(rng)
    requests = []
    for _ in range(args.count):
        request = generator.request()
        requests.append(generator.damaged(request) if rng.random() < 0.17 else request)
    tokenizer = recipe.released_tokenizer(args.work)
    library = recipe.Library(tokenizer)
    answers = recipe.drive(args, [{"render": request} for request in requests],
                           recipe.tools_template(library), tokenizer)
    differences = 0
    for index, (request, answer) in enumerate(zip(requests, answers)):
        found = difference(library, request, answer)
        if found is not None:
            differences += 1
            if differences <= 10:
                print("conversation %d: %s\n  %s" % (
                    index, found, json.dumps(request, ensure_ascii=False)))
    refused = sum("error" in answer for answer in answers)
    print("seed %d: %d conversations, %d refused by both, %d differences" % (
        args.seed, len(requests), refused, differences))
    if len(requests) - refused < len(requests) // 2:
        raise SystemExit("too few conversations were accepted to say anything")
    raise SystemExit(1 if differences else 0)


if __name__ == "__main__":
    main()
