// The chat page: one conversation over /v1/chat/completions.

import { Refusal, events, request } from "./api.js";
import { $, make } from "./dom.js";
import { AnswerView, noteView, turnView } from "./answer.js";
import { readSettings } from "./settings.js";

let messages = [];       // as they go to the server
let running = null;      // AbortController of the answer that is being written
let owed = new Map();    // tool call id -> field for its result

export function isRunning() {
  return running !== null;
}

export function stop() {
  running?.abort();
}

export function startAnew() {
  stop();
  messages = [];
  owed = new Map();
  $("log").replaceChildren();
  $("said").textContent = "New conversation.";
  $("message").focus();
}

export function toggleThinking() {
  const parts = [...document.querySelectorAll("details.thinking")];
  const open = parts.some((part) => !part.open);
  for (const part of parts) part.open = open;
}

function show(node) {
  const log = $("log");
  $("empty")?.remove();
  log.append(node);
  log.scrollTop = log.scrollHeight;
}

// Follows the answer, unless its reader has scrolled up.
function following(change) {
  const log = $("log");
  const near = log.scrollHeight - log.scrollTop - log.clientHeight < 48;
  change();
  if (near) log.scrollTop = log.scrollHeight;
}

export async function send() {
  if (running !== null) return;
  if (owed.size > 0) return sendResults();
  const field = $("message");
  const text = field.value;
  if (text.trim() === "") return;
  field.value = "";
  messages.push({ role: "user", content: text });
  show(turnView("You", text));
  await answer();
}

function sendResults() {
  for (const [id, field] of owed) {
    messages.push({ role: "tool", tool_call_id: id, content: field.value });
    field.readOnly = true;
  }
  owed = new Map();
  for (const button of document.querySelectorAll(".results-send")) button.remove();
  return answer();
}

function setRunning(controller) {
  running = controller;
  const away = document.activeElement === $("stop") || document.activeElement === $("send");
  $("stop").hidden = controller === null;
  $("send").hidden = controller !== null;
  if (away) $("message").focus();
}

// The answer to the messages so far. A refused one leaves no trace in them but the question, which
// comes back into the field where nothing was said to it.
async function answer() {
  const controller = new AbortController();
  setRunning(controller);
  const view = new AnswerView();
  $("said").textContent = "Waiting for the answer.";
  try {
    const body = bodyOf(readSettings());
    const response = await request("v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal: controller.signal,
    });
    show(view.node);
    await follow(response, view);
    finish(view, "");
  } catch (error) {
    if (error.name === "AbortError") finish(view, "stopped");
    else fail(view, error);
  }
  if (running === controller) setRunning(null);
}

function bodyOf(settings) {
  const { system, ...rest } = settings;
  const first = system === "" ? [] : [{ role: "system", content: system }];
  return {
    messages: [...first, ...messages],
    stream: true,
    stream_options: { include_usage: true },
    ...rest,
  };
}

async function follow(response, view) {
  for await (const data of events(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Refusal(200, chunk.error.message);
    if (!view.begun) $("said").textContent = "Answering.";
    following(() => view.take(chunk));
  }
  throw new Refusal(0, "the stream ended before the answer did");
}

function finish(view, how) {
  following(() => view.end(how));
  $("said").textContent = view.summary(how);
  const message = view.message();
  if (message === null || !view.node.isConnected) return;
  messages.push(message);
  if (how === "stopped") delete message.tool_calls;  // perhaps half a call
  const calls = message.tool_calls ?? [];
  following(() => askForResults(view, calls));
}

function askForResults(view, calls) {
  calls.forEach((call, i) => owed.set(call.id, view.resultField(i)));
  if (calls.length === 0) return;
  const button = make("button", { type: "button", class: "results-send" }, "Send results");
  button.addEventListener("click", sendResults);
  view.node.append(button);
  owed.get(calls[0].id).focus();
}

function fail(view, error) {
  following(() => view.end("failed"));
  const words = error instanceof Refusal ? error.message : String(error);
  show(noteView(error.status > 0 ? `${error.status}` : "", words, error.retryAfterS ?? 0));
  $("said").textContent = "No answer.";
  const last = messages.at(-1);
  if (!view.begun && last?.role === "user" && $("message").value === "") {
    messages.pop();
    $("message").value = last.content;
  } else if (view.message() !== null) {
    messages.push({ role: "assistant", content: view.message().content });
  }
  if (error.status === 401) document.dispatchEvent(new CustomEvent("key", { detail: words }));
}
