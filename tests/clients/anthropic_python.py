"""Anthropic's Python library: Messages, streamed and not, and the count of tokens."""

import conversation as talk
import harness

TOOLS = [{"name": talk.TOOL, "description": talk.DESCRIPTION, "input_schema": talk.SCHEMA}]
THINKING = {"type": "enabled", "budget_tokens": 2000}


def whole(client, **request):
    return client.messages.create(**request)


def streamed(client, **request):
    """The library's own sum of the events; its pieces must come to the same."""
    text, thinking, partial = "", "", ""
    with client.messages.stream(**request) as stream:
        for event in stream:
            if event.type == "content_block_delta":
                delta = event.delta
                text += delta.text if delta.type == "text_delta" else ""
                thinking += delta.thinking if delta.type == "thinking_delta" else ""
                partial += delta.partial_json if delta.type == "input_json_delta" else ""
        final = stream.get_final_message()
    harness.same(text, text_of(final), "messages: text of deltas")
    harness.same(thinking, thinking_of(final), "messages: thinking of deltas")
    harness.check((partial != "") == any(block.type == "tool_use" for block in final.content),
                  "messages: input of deltas")
    return final


def text_of(message):
    return "".join(block.text for block in message.content if block.type == "text")


def thinking_of(message):
    return "".join(block.thinking for block in message.content if block.type == "thinking")


def messages(client, take, what):
    turns = [{"role": "user", "content": talk.QUESTION}]
    for step in range(1, talk.STEPS + 2):
        answer = take(client, model="scripted", max_tokens=4096, system="You follow trails.",
                      thinking=THINKING, tools=TOOLS, messages=turns)
        made = [block for block in answer.content if block.type == "tool_use"]
        found = talk.check_turn(step, text_of(answer), thinking_of(answer),
                                [block.input for block in made], what)
        harness.same(answer.stop_reason, "tool_use" if made else "end_turn", what + ", stop_reason")
        harness.check(answer.usage.input_tokens >= 0 and answer.usage.output_tokens > 0,
                      what + ", usage")
        turns.append({"role": "assistant",
                      "content": [block.model_dump(exclude_none=True) for block in answer.content]})
        turns.append({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": block.id, "content": talk.result(arguments)}
            for block, arguments in zip(made, found)]})


def count(client):
    request = {"model": "scripted", "messages": [{"role": "user", "content": talk.QUESTION}]}
    bare = client.messages.count_tokens(**request).input_tokens
    tooled = client.messages.count_tokens(tools=TOOLS, **request).input_tokens
    harness.check(0 < bare < tooled, "count_tokens: %d without tools, %d with" % (bare, tooled))


def short(client):
    """With the model itself: what it says is not ours to know, but both ways answer."""
    turns = [{"role": "user", "content": "What is in the folder?"}]
    request = {"model": "fathom-34m", "max_tokens": 24, "tools": TOOLS,
               "thinking": {"type": "disabled"}}
    for _ in range(2):
        for take in (whole, streamed):
            answer = take(client, messages=turns, **request)
            harness.check(answer.stop_reason in ("end_turn", "max_tokens", "tool_use"),
                          "shipped model, stop_reason %r" % answer.stop_reason)
            harness.check(0 < answer.usage.output_tokens <= 24, "shipped model, usage")
        turns += [{"role": "assistant", "content": [
                      {"type": "tool_use", "id": "a", "name": talk.TOOL,
                       "input": {"place": "folder"}}]},
                  {"role": "user", "content": [
                      {"type": "tool_result", "tool_use_id": "a", "content": "two files"}]}]


def refusals(anthropic, client):
    try:
        client.messages.create(model="another", max_tokens=5,
                               messages=[{"role": "user", "content": "x"}])
    except anthropic.NotFoundError as error:
        harness.check("another" in str(error), "error names the model")
    else:
        harness.check(False, "an unknown model was accepted")
    try:
        client.messages.create(model="scripted", max_tokens=5,
                               messages=[{"role": "wizard", "content": "x"}])
    except anthropic.BadRequestError as error:
        harness.check("role" in str(error), "error names the field")
    else:
        harness.check(False, "the role wizard was accepted")


def main():
    args = harness.beside_libraries()
    import anthropic

    def client_of(port):
        return anthropic.Anthropic(base_url="http://127.0.0.1:%d" % port, api_key="none",
                                   max_retries=0, timeout=60)

    with harness.scripted(args, talk.rules(), "anthropic_python") as port:
        client = client_of(port)
        messages(client, whole, "messages")
        messages(client, streamed, "messages, streamed")
        count(client)
        refusals(anthropic, client)
    with harness.shipped(args, "anthropic_python_shipped") as port:
        short(client_of(port))
    print("anthropic %s: conversations of %d steps, all as written" % (anthropic.__version__,
                                                                       talk.STEPS))


main()
