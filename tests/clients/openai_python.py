"""OpenAI's Python library: Chat Completions, Responses and Completions, streamed and not."""

import conversation as talk
import harness

TOOLS = [{"type": "function", "function": {"name": talk.TOOL, "description": talk.DESCRIPTION,
                                           "parameters": talk.SCHEMA}}]
RESPONSE_TOOLS = [{"type": "function", "name": talk.TOOL, "description": talk.DESCRIPTION,
                   "parameters": talk.SCHEMA, "strict": False}]


def chat_streamed(client, **request):
    """The message that the chunks of a stream come to, and the last finish reason."""
    text, thinking, parts, reason, usage = "", "", {}, None, None
    stream = client.chat.completions.create(stream=True, stream_options={"include_usage": True},
                                            **request)
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reason = choice.finish_reason or reason
            text += choice.delta.content or ""
            thinking += getattr(choice.delta, "reasoning_content", None) or ""
            for part in choice.delta.tool_calls or []:
                known = parts.setdefault(part.index, {"id": part.id, "name": part.function.name,
                                                      "arguments": ""})
                known["arguments"] += part.function.arguments or ""
    harness.check(usage is not None and usage.total_tokens > 0, "chat stream: usage")
    return text, thinking, [parts[index] for index in sorted(parts)], reason


def chat_whole(client, **request):
    answer = client.chat.completions.create(**request)
    message = answer.choices[0].message
    parts = [{"id": one.id, "name": one.function.name, "arguments": one.function.arguments}
             for one in message.tool_calls or []]
    return (message.content, getattr(message, "reasoning_content", None), parts,
            answer.choices[0].finish_reason)


def chat(client, take, what):
    messages = [{"role": "system", "content": "You follow trails."},
                {"role": "user", "content": talk.QUESTION}]
    for step in range(1, talk.STEPS + 2):
        text, thinking, parts, reason = take(client, model="scripted", messages=messages,
                                             tools=TOOLS)
        found = talk.check_turn(step, text, thinking, [part["arguments"] for part in parts], what)
        harness.same(reason, "tool_calls" if parts else "stop", what + ", finish_reason")
        messages.append({"role": "assistant", "content": text, "reasoning_content": thinking,
                         "tool_calls": [{"id": part["id"], "type": "function",
                                         "function": {"name": part["name"],
                                                      "arguments": part["arguments"]}}
                                        for part in parts]})
        for part, arguments in zip(parts, found):
            messages.append({"role": "tool", "tool_call_id": part["id"],
                             "content": talk.result(arguments)})


def responses_streamed(client, **request):
    """The final response; its pieces must come to the same text and arguments."""
    text, arguments, final, last = "", "", None, -1
    for event in client.responses.create(stream=True, **request):
        harness.check(event.sequence_number > last, "responses: sequence_number")
        last = event.sequence_number
        if event.type == "response.output_text.delta":
            text += event.delta
        elif event.type == "response.function_call_arguments.delta":
            arguments += event.delta
        elif event.type == "response.completed":
            final = event.response
    harness.check(final is not None, "responses: no response.completed")
    harness.same(text, final.output_text, "responses: text of deltas")
    harness.same(arguments, "".join(item.arguments for item in final.output
                                    if item.type == "function_call"), "responses: arguments")
    return final


def responses(client, take, what):
    items = [{"role": "user", "content": talk.QUESTION}]
    for step in range(1, talk.STEPS + 2):
        answer = take(client, model="scripted", instructions="You follow trails.", input=items,
                      tools=RESPONSE_TOOLS, store=False)
        harness.same(answer.status, "completed", what + ", status")
        made = [item for item in answer.output if item.type == "function_call"]
        found = talk.check_turn(step, answer.output_text, None,
                                [item.arguments for item in made], what)
        items += [item.model_dump(exclude_none=True) for item in answer.output]
        for item, arguments in zip(made, found):
            items.append({"type": "function_call_output", "call_id": item.call_id,
                          "output": talk.result(arguments)})


def completions(client, what):
    request = {"model": "scripted", "prompt": "Once", "max_tokens": 50}
    whole = client.completions.create(**request)
    harness.same((whole.choices[0].text, whole.choices[0].finish_reason),
                 ("upon a time", "stop"), what)
    text = "".join(chunk.choices[0].text for chunk in
                   client.completions.create(stream=True, **request) if chunk.choices)
    harness.same(text, "upon a time", what + ", streamed")


def short(client):
    """With the model itself: what it says is not ours to know, but both ways say the same."""
    messages = [{"role": "user", "content": "What is in the folder?"}]
    request = {"model": "fathom-34m", "tools": TOOLS, "max_tokens": 24, "seed": 3,
               "extra_body": {"thinking": {"type": "disabled"}, "restore": "exact"}}
    for _ in range(2):
        whole = chat_whole(client, messages=messages, **request)
        streamed = chat_streamed(client, messages=messages, **request)
        harness.same(streamed[0], whole[0] or "", "shipped model, streamed text")
        harness.same(streamed[3], whole[3], "shipped model, finish_reason")
        messages += [{"role": "assistant", "content": whole[0], "tool_calls": [
                         {"id": "a", "type": "function",
                          "function": {"name": talk.TOOL, "arguments": '{"place": "folder"}'}}]},
                     {"role": "tool", "tool_call_id": "a", "content": "two files"}]
    answer = client.responses.create(model="fathom-34m", input="Hello", max_output_tokens=16,
                                     tools=RESPONSE_TOOLS)
    harness.check(answer.status in ("completed", "incomplete"), "shipped model, responses")
    harness.check(answer.usage.output_tokens > 0, "shipped model, responses usage")
    text = client.completions.create(model="fathom-34m", prompt="int main", max_tokens=8)
    harness.check(text.usage.completion_tokens > 0, "shipped model, completions")


def refusals(openai, client):
    try:
        client.chat.completions.create(model="another", messages=[{"role": "user", "content": "x"}])
    except openai.NotFoundError as error:
        harness.check("another" in error.message, "error names the model")
    else:
        harness.check(False, "an unknown model was accepted")
    try:
        client.chat.completions.create(model="scripted", temperature=7,
                                       messages=[{"role": "user", "content": "x"}])
    except openai.BadRequestError as error:
        harness.check("temperature" in error.message, "error names the field")
    else:
        harness.check(False, "temperature 7 was accepted")


def main():
    args = harness.beside_libraries()
    import openai
    rules = talk.rules() + [{"when": "Once", "answer": "upon a time"}]

    def client_of(port):
        return openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % port, api_key="none",
                             max_retries=0, timeout=60)

    with harness.scripted(args, rules, "openai_python") as port:
        client = client_of(port)
        chat(client, chat_whole, "chat")
        chat(client, chat_streamed, "chat, streamed")
        responses(client, lambda c, **request: c.responses.create(**request), "responses")
        responses(client, responses_streamed, "responses, streamed")
        completions(client, "completions")
        refusals(openai, client)
    with harness.shipped(args, "openai_python_shipped") as port:
        short(client_of(port))
    print("openai %s: conversations of %d steps, all as written" % (openai.__version__,
                                                                     talk.STEPS))


main()
