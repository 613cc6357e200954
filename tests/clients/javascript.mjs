// The conversation of conversation.py through OpenAI's and Anthropic's JavaScript libraries.
// javascript.mjs EXPECTED.json PORT-OF-SCRIPT PORT-OF-MODEL
import assert from "node:assert/strict";
import fs from "node:fs";

import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const expected = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));
const options = { apiKey: "none", maxRetries: 0, timeout: 60000 };
const root = (port) => `http://127.0.0.1:${port}`;
const openai = new OpenAI({ ...options, baseURL: root(process.argv[3]) + "/v1" });
const anthropic = new Anthropic({ ...options, baseURL: root(process.argv[3]) });
const ownOpenai = new OpenAI({ ...options, baseURL: root(process.argv[4]) + "/v1" });
const ownAnthropic = new Anthropic({ ...options, baseURL: root(process.argv[4]) });

const { tool, description, schema } = expected;
const chatTools = [{ type: "function", function: { name: tool, description, parameters: schema } }];
const responseTools = [
  { type: "function", name: tool, description, parameters: schema, strict: false },
];
const messageTools = [{ name: tool, description, input_schema: schema }];

function checkTurn(step, text, thinking, calls, what) {
  if (thinking !== null) assert.equal(thinking, step.thinking, what);
  assert.deepEqual(calls, step.calls, what);
  assert.equal(text ?? "", step.text, what);
}

async function chatWhole(client, request) {
  const answer = await client.chat.completions.create(request);
  return { message: answer.choices[0].message, reason: answer.choices[0].finish_reason };
}

// The library's own sum of the chunks, and ours of the thinking, which it does not know.
async function chatStreamed(client, request) {
  const stream = client.chat.completions.stream({
    ...request,
    stream_options: { include_usage: true },
  });
  let thinking = "";
  for await (const chunk of stream) {
    thinking += chunk.choices[0]?.delta?.reasoning_content ?? "";
  }
  const final = await stream.finalChatCompletion();
  assert(final.usage.total_tokens > 0);
  const message = { ...final.choices[0].message, reasoning_content: thinking };
  return { message, reason: final.choices[0].finish_reason };
}

async function chat(take, what) {
  const messages = [
    { role: "system", content: "You follow trails." },
    { role: "user", content: expected.question },
  ];
  for (const [i, step] of expected.steps.entries()) {
    const place = `${what}, step ${i + 1}`;
    const request = { model: "scripted", messages, tools: chatTools };
    const { message, reason } = await take(openai, request);
    const calls = message.tool_calls ?? [];
    const found = calls.map((call) => JSON.parse(call.function.arguments));
    checkTurn(step, message.content, message.reasoning_content, found, place);
    assert.equal(reason, calls.length > 0 ? "tool_calls" : "stop", place);
    messages.push({
      role: "assistant",
      content: message.content,
      reasoning_content: message.reasoning_content,
      tool_calls: calls.map((call) => ({
        id: call.id,
        type: "function",
        function: { name: call.function.name, arguments: call.function.arguments },
      })),
    });
    calls.forEach((call, n) =>
      messages.push({ role: "tool", tool_call_id: call.id, content: step.results[n] }),
    );
  }
}

async function responsesStreamed(client, request) {
  const stream = client.responses.stream(request);
  let text = "";
  for await (const event of stream) {
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  const final = await stream.finalResponse();
  assert.equal(text, final.output_text);
  return final;
}

async function responses(take, what) {
  const input = [{ role: "user", content: expected.question }];
  for (const [i, step] of expected.steps.entries()) {
    const place = `${what}, step ${i + 1}`;
    const answer = await take(openai, {
      model: "scripted",
      instructions: "You follow trails.",
      input,
      tools: responseTools,
      store: false,
    });
    const calls = answer.output.filter((item) => item.type === "function_call");
    const found = calls.map((call) => JSON.parse(call.arguments));
    checkTurn(step, answer.output_text, null, found, place);
    for (const { parsed_arguments: _, ...item } of answer.output) input.push(item);
    calls.forEach((call, n) =>
      input.push({ type: "function_call_output", call_id: call.call_id, output: step.results[n] }),
    );
  }
}

const messagesWhole = (client, request) => client.messages.create(request);
const messagesStreamed = (client, request) => client.messages.stream(request).finalMessage();
const joined = (blocks, type) =>
  blocks.filter((block) => block.type === type).map((block) => block[type]).join("");

async function messages(take, what) {
  const turns = [{ role: "user", content: expected.question }];
  for (const [i, step] of expected.steps.entries()) {
    const place = `${what}, step ${i + 1}`;
    const answer = await take(anthropic, {
      model: "scripted",
      max_tokens: 4096,
      system: "You follow trails.",
      thinking: { type: "enabled", budget_tokens: 2000 },
      tools: messageTools,
      messages: turns,
    });
    const calls = answer.content.filter((block) => block.type === "tool_use");
    const inputs = calls.map((block) => block.input);
    const thinking = joined(answer.content, "thinking");
    checkTurn(step, joined(answer.content, "text"), thinking, inputs, place);
    assert.equal(answer.stop_reason, calls.length > 0 ? "tool_use" : "end_turn", place);
    turns.push({ role: "assistant", content: answer.content });
    turns.push({
      role: "user",
      content: calls.map((block, n) => ({
        type: "tool_result",
        tool_use_id: block.id,
        content: step.results[n],
      })),
    });
  }
}

async function completions() {
  const request = { model: "scripted", prompt: "Once", max_tokens: 50 };
  const whole = await openai.completions.create(request);
  assert.equal(whole.choices[0].text, "upon a time");
  let text = "";
  for await (const chunk of await openai.completions.create({ ...request, stream: true })) {
    text += chunk.choices[0]?.text ?? "";
  }
  assert.equal(text, "upon a time");
}

// With the model itself: what it says is not ours to know, but both ways say the same.
async function short() {
  const turns = [{ role: "user", content: "What is in the folder?" }];
  const request = {
    model: "fathom-34m",
    max_tokens: 24,
    seed: 3,
    tools: chatTools,
    thinking: { type: "disabled" },
    restore: "exact",
  };
  for (let round = 0; round < 2; ++round) {
    const whole = await chatWhole(ownOpenai, { ...request, messages: turns });
    let text = "";
    const stream = await ownOpenai.chat.completions.create({
      ...request,
      messages: turns,
      stream: true,
    });
    for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? "";
    assert.equal(text, whole.message.content ?? "");
    const call = { name: tool, arguments: '{"place": "folder"}' };
    turns.push({
      role: "assistant",
      content: text,
      tool_calls: [{ id: "a", type: "function", function: call }],
    });
    turns.push({ role: "tool", tool_call_id: "a", content: "two files" });
  }
  const answer = await ownAnthropic.messages.create({
    model: "fathom-34m",
    max_tokens: 16,
    tools: messageTools,
    messages: [{ role: "user", content: "Hello" }],
  });
  assert(answer.usage.output_tokens > 0);
}

await chat(chatWhole, "chat");
await chat(chatStreamed, "chat, streamed");
await responses((client, request) => client.responses.create(request), "responses");
await responses(responsesStreamed, "responses, streamed");
await messages(messagesWhole, "messages");
await messages(messagesStreamed, "messages, streamed");
await completions();
await short();
console.log(`JavaScript libraries: conversations of ${expected.steps.length - 1} steps, as written`);
