"""Random requests of three protocols: fathom's conversion and events against the library's.

Goal: every Messages, Responses and Chat Completions request that the library accepts gives the same
prompt and the same settings in force, every one that it refuses is refused, and the same model
output gives the same events and the same whole answer. Method: 2,000 seeded requests a protocol
with all kinds of turns, blocks, tools and choices, about one in eight damaged in one place; random
outputs cut at random. Event streams are compared with the deltas of one kind joined. The calls of a
turn on Responses come in the order of their ids: the library sorts them, fathom keeps their order.
Left out are inputs that fathom takes beyond the library, and what the library has a text of its own
for (apply_patch).
"""

import json
import math
import random

import chat_differential
import output_differential
import recipe

EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra"]
PREFIXES = {"chat": "ChatCompletion", "messages": "Messages", "responses": "Responses"}


def finite(value):
    """Numbers that are no JSON are not sent."""
    if isinstance(value, float) and not math.isfinite(value):
        return 0
    if isinstance(value, list):
        return [finite(one) for one in value]
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return value


class Generator(chat_differential.Generator):
    def sampling(self, request):
        rng = self.rng
        if rng.random() < 0.3:
            request["temperature"] = rng.choice([0, 0.2, 0.7, 1, 1.5, 2, 2.5])
        if rng.random() < 0.3:
            request["top_p"] = rng.choice([0, 0.4, 0.5, 0.96, 0.99, 1, 1.5])
        return request

    def input_value(self):
        try:
            return finite(json.loads(self.json_object(
                [self.json_value() for _ in range(self.rng.randint(0, 3))], "")))
        except ValueError:
            return {}

    def calls(self):
        names = ["call_%d" % self.rng.randint(0, 99) for _ in range(self.rng.randint(1, 3))]
        return list(dict.fromkeys(names))

    def chat(self):
        request = self.sampling(super().request())
        if self.rng.random() < 0.2:
            request["stop"] = self.rng.choice(["STOP", ["STOP", "丙"], [""], []])
        if self.rng.random() < 0.3:
            request["max_tokens"] = self.rng.choice([0, 1, 1, 100, 100, 393216, 393217])
        return request

    # -------------------------------------------------------------- Messages

    def block(self, images=True):
        kind = self.rng.random()
        if kind < 0.7 or not images:
            return {"type": "text", "text": self.text()}
        if kind < 0.85:
            self.images += 1
            return {"type": "image", "source": self.rng.choice([
                {"type": "url", "url": "https://example.org/%d.png" % self.images},
                {"type": "base64", "media_type": "image/png", "data": "AAAA"}])}
        return {"type": "document", "source": self.rng.choice(
            [{"type": "text", "media_type": "text/plain", "data": "d"}, {"type": "url"}])}

    def blocks(self, images=True, least=0):
        if self.rng.random() < 0.4:
            return self.text()
        return [self.block(images) for _ in range(self.rng.randint(least, 3))]

    def thoughts(self):
        return [{"type": "thinking", "thinking": self.text(), "signature": "s"}
                for _ in range(self.rng.choice([0, 0, 1, 1, 2]))]

    def messages_round(self):
        calls = self.calls()
        content = self.thoughts() + [self.block(False) for _ in range(self.rng.choice([0, 1, 2]))]
        for identity in calls:
            content.append({"type": "tool_use", "id": identity, "name": self.rng.choice(
                chat_differential.NAMES), "input": self.input_value()})
        self.rng.shuffle(calls)
        results = []
        for identity in calls:
            result = {"type": "tool_result", "tool_use_id": identity}
            if self.rng.random() < 0.9:
                result["content"] = self.blocks()
            if self.rng.random() < 0.2:
                result["is_error"] = self.rng.choice([True, False])
            results.append(result)
        results += [self.block() for _ in range(self.rng.choice([0, 0, 1]))]
        return [{"role": "assistant", "content": content}, {"role": "user", "content": results}]

    def messages(self, with_calls):
        if not self.anthropic:
            return super().messages(with_calls)
        out = []
        for _ in range(self.rng.randint(1, 6)):
            kind = self.rng.random()
            if kind < 0.45:
                out.append({"role": "user", "content": self.blocks(least=1)})
            elif kind < 0.65:
                content = self.thoughts() + [self.block(False)]
                out.append({"role": "assistant", "content": self.rng.choice(
                    [self.text(), content])})
            elif kind < 0.9 and with_calls:
                out += self.messages_round()
            else:
                out.append({"role": "system", "content": self.blocks(images=False, least=1)})
        return out

    def anthropic_request(self):
        rng = self.rng
        self.anthropic = True
        request = {"messages": self.messages(rng.random() < 0.6),
                   "max_tokens": rng.choice([1, 100, 400000])}
        self.anthropic = False
        if rng.random() < 0.5:
            request["system"] = self.blocks(images=False)
        if rng.random() < 0.5:
            tools = []
            for tool in self.tools():
                function = tool["function"]
                tools.append({"name": function["name"], "input_schema": self.schema()})
                if "description" in function:
                    tools[-1]["description"] = function["description"]
            request["tools"] = tools
            if rng.random() < 0.5:
                name = rng.choice([tool["name"] for tool in tools] + ["zz"])
                request["tool_choice"] = rng.choice(
                    [{"type": "auto"}, {"type": "any"}, {"type": "none"},
                     {"type": "tool", "name": name}])
        if rng.random() < 0.6:
            request["thinking"] = {"type": rng.choice(["enabled", "disabled", "disabled",
                                                       "adaptive"])}
        if rng.random() < 0.4:
            request["output_config"] = {"effort": rng.choice(EFFORTS + [None])}
        if rng.random() < 0.3:
            request["stop_sequences"] = rng.choice([["STOP"], ["丙", "it"], [], [""]])
        return self.sampling(request)

    # -------------------------------------------------------------- Responses

    def parts(self, kind):
        if self.rng.random() < 0.5:
            return self.text()
        out = []
        for _ in range(self.rng.randint(0, 3)):
            if kind == "input_text" and self.rng.random() < 0.2:
                self.images += 1
                out.append({"type": "input_image",
                            "image_url": "https://example.org/%d.png" % self.images})
            else:
                out.append({"type": kind, "text": self.text()})
        return out

    def reasoning(self):
        return [{"type": "reasoning", "id": "rs", "summary": [], "content": [
            {"type": "reasoning_text", "text": self.rng.choice(["r", "why\n", "潮"])}
            for _ in range(self.rng.randint(0, 2))]} for _ in range(self.rng.choice([0, 1, 1, 2]))]

    def responses_round(self):
        calls = self.calls()
        items = self.reasoning()
        calls.sort()  # the library puts the calls of a turn into the order of their ids
        if self.rng.random() < 0.4:
            items.append({"role": "assistant", "content": self.parts("output_text")})
        for identity in calls:
            items.append({"type": "function_call", "call_id": identity, "name": self.rng.choice(
                chat_differential.NAMES), "arguments": self.arguments()})
        self.rng.shuffle(calls)
        for identity in calls:
            items.append({"type": "function_call_output", "call_id": identity,
                          "output": self.parts("input_text")})
        return items

    def items(self):
        out = []
        for _ in range(self.rng.randint(1, 6)):
            kind = self.rng.random()
            if kind < 0.4:
                out.append({"role": "user", "content": self.parts("input_text")})
            elif kind < 0.6:
                out += self.reasoning()
                out.append({"type": "message", "role": "assistant",
                            "content": self.parts("output_text")})
            elif kind < 0.8:
                out += self.responses_round()
            else:
                out.append({"role": self.rng.choice(["system", "developer"]),
                            "content": self.text() + "s"})
        return out

    def responses_tools(self):
        tools = []
        for tool in self.tools():
            function = dict(tool["function"], type="function")
            if self.rng.random() < 0.2:
                function = {"type": "namespace", "name": self.rng.choice(["ns", "m-1"]),
                            "tools": [function]}
                if self.rng.random() < 0.5:
                    function["description"] = self.text()
            tools.append(function)
        if self.rng.random() < 0.2:
            tools.append({"type": self.rng.choice(["web_search", "file_search", "zz"])})
        return tools

    def responses_request(self):
        rng = self.rng
        request = {"input": self.text() if rng.random() < 0.2 else self.items()}
        if rng.random() < 0.3:
            request["instructions"] = self.text()
        if rng.random() < 0.5:
            request["tools"] = self.responses_tools()
            if rng.random() < 0.4:
                name = rng.choice([tool.get("name", "zz") for tool in request["tools"]] + ["zz"])
                request["tool_choice"] = rng.choice(
                    ["auto", "none", "required", {"type": "function", "name": name}])
        if rng.random() < 0.7:
            request["reasoning"] = {"effort": rng.choice(EFFORTS + ["none", "none", None])}
            if rng.random() < 0.2:
                request["reasoning"]["summary"] = rng.choice(["auto", "detailed", "zz"])
        if rng.random() < 0.2:
            request["text"] = {"format": rng.choice(
                [{"type": "text"}, {"type": "json_object"},
                 {"type": "json_schema", "name": "n", "schema": self.schema()}])}
        if rng.random() < 0.3:
            request["max_output_tokens"] = rng.choice([0, 1, 100, 393216, 393217])
        if rng.random() < 0.1:
            request["previous_response_id"] = "resp_x"
        return self.sampling(request)

    anthropic = False

    def request_of(self, api):
        make = {"chat": self.chat, "messages": self.anthropic_request,
                "responses": self.responses_request}
        self.images = 0
        return make[api]()


class Library:
    def __init__(self, base):
        self.base = base

    def convert(self, api, request):
        """The request after conversion with its generator, or None and the refusal's words."""
        module = self.base.recipe
        kind = getattr(module, PREFIXES[api] + "Request")
        try:
            parsed = kind(json.dumps(dict(request, model=recipe.MODEL), ensure_ascii=False))
            echo = parsed.echo() if api == "responses" else None
            names = parsed.namespace_tool_map(self.base.options) if api == "responses" else None
            converted = parsed.convert(self.base.options)
        except module.ConversionError as error:
            if error.status_code != 400:
                raise
            return None, error.body
        except ValueError as error:
            return None, str(error)
        options = converted.parsing_options
        generator = kind.chunk_generator(converted, "ID", "model")
        if echo is not None:
            generator = generator.with_echo(echo).with_namespace_tool_map(names)
        return (converted, options, generator), ""

    def answer(self, api, options, generator, job):
        """The events and the whole answer; the job keeps the chunks that were taken."""
        module = self.base.recipe
        processor = module.StreamProcessor(generator, options)
        response = getattr(module, PREFIXES[api] + "Response")
        whole = response("ID", "model", 0, 7, 4)
        out = []

        def take(events):
            for event in events:
                out.append([response.sse_event_name(event), json.loads(event.to_json())])
                whole.accumulate(event)

        chunk = module.InferenceChunk
        usage = module.PromptUsage(prompt_tokens=7, prompt_cache_hit_tokens=4)
        take(processor.push(chunk.ready(prompt_usage=usage, system_fingerprint="fp")))
        taken = 0
        while taken < len(job["chunks"]) and not processor.finished:
            take(processor.push(chunk.text(job["chunks"][taken], 2)))
            taken += 1
        job["chunks"] = job["chunks"][:taken]
        if not processor.finished:
            reason = output_differential.FINISHES[job["finish"]]
            take(processor.push(chunk.finish(getattr(module.InferenceFinishReason, reason))))
        take(processor.finish())
        return out, json.loads(whole.to_json())


def renamed(value, names):
    """Ids of calls by their number, times 0, no numbers of events."""
    if isinstance(value, list):
        return [renamed(one, names) for one in value]
    if not isinstance(value, dict):
        return value
    out = {}
    for key, inner in value.items():
        if key in ("created", "created_at", "completed_at") and inner is not None:
            inner = 0
        if key in ("id", "call_id") and isinstance(inner, str) and inner.startswith(
                ("call_", "CALL_")):
            inner = names.setdefault(inner, "CALL_%d" % len(names))
        if key != "sequence_number":
            out[key] = renamed(inner, names)
    return out


def text_place(event):
    """Where the text of a delta is: a dictionary and a key; None in other events."""
    if "choices" in event:
        choice = event["choices"][0]
        delta = choice["delta"]
        if choice["finish_reason"] is not None or "role" in delta:
            return None
        if "tool_calls" in delta:
            call = delta["tool_calls"][0]
            return None if "id" in call else (call["function"], "arguments")
        return next(((delta, key) for key in delta if isinstance(delta[key], str)), None)
    delta = event.get("delta")
    if isinstance(delta, str):
        return event, "delta"
    for key in ("text", "thinking", "partial_json"):
        if isinstance(delta, dict) and key in delta:
            return delta, key
    return None


def joined(events):
    out = []
    for name, event in renamed(events, {}):
        place = text_place(event)
        last = text_place(out[-1][1]) if out else None
        if place is not None and last is not None:
            text = place[0][place[1]]
            before = last[0][last[1]]
            place[0][place[1]] = before
            if [name, event] == out[-1]:
                last[0][last[1]] = before + text
                continue
            place[0][place[1]] = text
        out.append([name, event])
    return out


def tolerant(whole):
    """Without what the two may say differently: no `index` of whole calls, JSON of cut inputs."""
    for choice in whole.get("choices", []):
        for call in choice["message"].get("tool_calls", []):
            call.pop("index", None)
        choice["message"]["content"] = choice["message"].get("content") or ""
    for block in whole.get("content", []) if isinstance(whole.get("content"), list) else []:
        if whole.get("stop_reason") != "tool_use":
            block.pop("input", None)
    return whole


def first_difference(library, fathom):
    for index in range(max(len(library), len(fathom))):
        a = library[index] if index < len(library) else None
        b = fathom[index] if index < len(fathom) else None
        if a != b:
            return "event %d: library %s, fathom %s" % (
                index, json.dumps(a, ensure_ascii=False), json.dumps(b, ensure_ascii=False))
    return None


def beyond_the_library(request):
    """Efforts as numbers, in each protocol's own field."""
    inner = [request.get("output_config"), request.get("reasoning")]
    efforts = [one.get("effort") for one in inner if isinstance(one, dict)]
    return chat_differential.beyond_the_library(request) or any(
        isinstance(effort, int) and not isinstance(effort, bool) for effort in efforts)


def wanted_of(library, job):
    """What the library makes of the job, or None and its refusal."""
    found, refusal = library.convert(job["api"], job["request"])
    if found is None:
        return None, refusal
    converted, options, generator = found
    rendered = library.base.render(converted)
    inference = converted.inference_options
    events, whole = library.answer(job["api"], options, generator, job)
    return {"prompt": rendered.prompt, "images": len(rendered.image_sources),
            "thinking": converted.conversation.thinking_mode,
            "max_tokens": inference.max_tokens, "stop": list(options.stop_sequences),
            "temperature": round(inference.temperature, 6), "top_p": round(inference.top_p, 6),
            "events": events, "whole": whole, "json_mode": options.parse_json_output}, ""


def difference(job, wanted, refusal, answer):
    if wanted is None:
        if "error" in answer or beyond_the_library(job["request"]):
            return None
        return "the library refuses it: " + refusal
    if "error" in answer:
        return "fathom refuses it: " + answer["error"]
    for key in ("prompt", "images", "thinking", "max_tokens", "stop", "temperature", "top_p"):
        if answer[key] != wanted[key]:
            return "%s: library %r, fathom %r" % (key, wanted[key], answer[key])
    if wanted["json_mode"]:
        return None  # how many spaces there are depends on the cuts
    if not output_differential.usual_parameters("".join(job["chunks"])):
        return None  # the library garbles such keys
    if job["api"] == "chat":  # the library gives the usage whether it is asked for or not
        wanted["events"][-1][1]["usage"] = None
    found = first_difference(joined(wanted["events"]), joined(answer["events"]))
    whole = [tolerant(renamed(one["whole"], {})) for one in (wanted, answer)]
    if found is None and whole[0] != whole[1]:
        found = "whole: library %s, fathom %s" % tuple(json.dumps(one) for one in whole)
    return found


def pieces(rng, text):
    out = []
    while text:
        size = rng.choice([1, 3, 10, 40])
        out.append(text[:size])
        text = text[size:]
    return out


def compare(args, library, template, api, rng):
    generator = Generator(rng)
    jobs = []
    for _ in range(args.count):
        request = generator.request_of(api)
        if rng.random() < 0.13:
            request = generator.damaged(request)
        jobs.append({"api": api, "request": request,
                     "chunks": pieces(rng, output_differential.output(rng)),
                     "finish": rng.choice(["stop", "stop", "length", "content_filter"])})
    wanted = [wanted_of(library, job) for job in jobs]
    answers = recipe.drive(args, jobs, template)
    differences = 0
    for index, (job, (want, refusal), answer) in enumerate(zip(jobs, wanted, answers)):
        found = difference(job, want, refusal, answer)
        if found is not None:
            differences += 1
            if differences <= 10:
                print("%s request %d: %s\n  %s" % (
                    api, index, found, json.dumps(job, ensure_ascii=False)))
    refused = sum("error" in answer for answer in answers)
    print("%s, seed %d: %d requests, %d refused by both, %d differences" % (
        api, args.seed, len(jobs), refused, differences))
    if len(jobs) - refused < len(jobs) // 2:
        raise SystemExit("too few requests were accepted to say anything")
    return differences


def main():
    args = recipe.start()
    base = recipe.Library()
    template = recipe.tools_template(base)
    differences = [compare(args, Library(base), template, api, random.Random(args.seed))
                   for api in ("messages", "responses", "chat")]
    raise SystemExit(1 if any(differences) else 0)


if __name__ == "__main__":
    main()
