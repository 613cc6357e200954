// What stands in the conversation: turns, answers with thinking and tool calls, notes.

import { GrowingText, make } from "./dom.js";

export function turnView(who, text) {
  const node = make("article", { class: "turn user", "aria-label": who });
  node.append(make("h3", {}, who), make("div", { class: "text" }, text));
  return node;
}

// A refusal: the status, and the server's own words.
export function noteView(status, words, retryAfterS) {
  const node = make("article", { class: "turn error", role: "alert" });
  if (status !== "") node.append(make("strong", {}, `${status} `));
  node.append(words);
  if (retryAfterS > 0) node.append(` (try again in ${retryAfterS} s)`);
  return node;
}

// Arguments come as the text of JSON, and are shown indented once they are whole.
function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

class CallView {
  constructor(call, number) {
    this.id = call.id;
    this.name = call.function.name;
    this.text = "";
    this.code = make("code");
    this.node = make("section", { class: "call", "aria-label": `Tool call ${this.name}` });
    this.node.append(
      make("h4", {}, `Tool call ${number}: `, make("code", {}, this.name)),
      make("pre", { tabindex: "0", "aria-label": "Arguments" }, this.code));
  }

  add(text) {
    this.text += text;
    this.code.textContent = this.text;
  }

  end() {
    this.code.textContent = indented(this.text);
  }
}

// An answer as it comes, chunk by chunk.
export class AnswerView {
  constructor() {
    this.node = make("article", { class: "turn answer", "aria-label": "Answer" });
    this.node.setAttribute("aria-busy", "true");
    this.node.append(make("h3", {}, "fathom"));
    this.thinking = "";
    this.content = "";
    this.calls = [];
    this.usage = null;
    this.own = null;
    this.reason = "";
    this.begun = false;
    this.askedMs = performance.now();
    this.firstMs = 0;
    this.lastMs = 0;
  }

  take(chunk) {
    if (chunk.usage) this.usage = chunk.usage;
    if (chunk.fathom) this.own = chunk.fathom;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    if (choice.finish_reason) this.reason = choice.finish_reason;
    const delta = choice.delta ?? {};
    if (delta.reasoning_content) this.addThinking(delta.reasoning_content);
    if (delta.content) this.addContent(delta.content);
    for (const call of delta.tool_calls ?? []) this.addCall(call);
  }

  said() {
    this.lastMs = performance.now();
    if (!this.begun) this.firstMs = this.lastMs;
    this.begun = true;
  }

  addThinking(text) {
    this.said();
    if (this.thinking === "") {
      const body = make("div");
      this.details = make("details", { class: "thinking", open: true });
      this.details.append(make("summary", {}, "Thinking"), body);
      this.node.append(this.details);
      this.thinkingText = new GrowingText(body);
    }
    this.thinking += text;
    this.thinkingText.add(text);
  }

  addContent(text) {
    this.said();
    if (this.content === "") {
      this.endThinking();
      const body = make("div", { class: "content" });
      this.node.append(body);
      this.contentText = new GrowingText(body);
    }
    this.content += text;
    this.contentText.add(text);
  }

  addCall(call) {
    this.said();
    if (call.id) {
      this.endThinking();
      const view = new CallView(call, this.calls.length + 1);
      this.calls.push(view);
      this.node.append(view.node);
    }
    this.calls[call.index]?.add(call.function?.arguments ?? "");
  }

  // Once the answer begins, thinking is folded away.
  endThinking() {
    if (!this.thinkingText) return;
    this.thinkingText.end();
    this.thinkingText = null;
    this.details.open = false;
  }

  // `how`: "" for a whole answer, "stopped", "failed".
  end(how) {
    const open = how !== "" || (this.content === "" && this.calls.length === 0);
    this.thinkingText?.end();
    this.thinkingText = null;
    if (this.details) this.details.open = open;
    this.contentText?.end();
    for (const call of this.calls) call.end();
    this.node.setAttribute("aria-busy", "false");
    const figures = this.figures(how);
    if (figures.length === 0) return;
    const list = make("dl", { class: "figures", "aria-label": "Figures of this answer" });
    for (const [name, value] of figures) {
      list.append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
    }
    this.node.append(list);
  }

  figures(how) {
    if (!this.begun && how !== "") return [];
    const figures = [["ended", how === "" ? this.reason : how]];
    if (this.usage) {
      const cached = this.usage.prompt_tokens_details?.cached_tokens ?? 0;
      figures.push(["prompt", `${this.usage.prompt_tokens}`], ["cached", `${cached}`]);
    }
    if (this.own) {
      figures.push(["replayed", `${this.own.replayed_tokens}`], ["restore", this.own.restore]);
      if (this.own.effort !== null) figures.push(["effort", `${this.own.effort}`]);
    }
    if (this.usage) figures.push(["answered", `${this.usage.completion_tokens}`]);
    if (this.begun) {
      figures.push(["first token", `${((this.firstMs - this.askedMs) / 1000).toFixed(2)} s`]);
    }
    const n = this.usage?.completion_tokens ?? 0;
    const spanS = (this.lastMs - this.firstMs) / 1000;
    if (n > 1 && spanS > 0) figures.push(["tokens/s", ((n - 1) / spanS).toFixed(1)]);
    return figures;
  }

  summary(how) {
    if (how === "stopped") return "Answer stopped.";
    const n = this.usage?.completion_tokens;
    return n === undefined ? "Answer complete." : `Answer complete, ${n} tokens.`;
  }

  // As it goes back to the server; null where nothing was said.
  message() {
    if (!this.begun) return null;
    const message = { role: "assistant", content: this.content };
    if (this.thinking !== "") message.reasoning_content = this.thinking;
    if (this.calls.length > 0) {
      message.tool_calls = this.calls.map((call) => ({
        id: call.id, type: "function", function: { name: call.name, arguments: call.text },
      }));
    }
    return message;
  }

  resultField(i) {
    const field = make("textarea", { rows: "2", class: "code" });
    this.calls[i].node.append(make("label", {}, `Result of ${this.calls[i].name}`, field));
    return field;
  }
}
