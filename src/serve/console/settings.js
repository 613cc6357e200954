// Settings of the chat page, kept in this browser.

import { Refusal } from "./api.js";
import { $ } from "./dom.js";

const kName = "fathom.settings";
const kFields = ["effort", "effort-number", "temperature", "max-tokens", "seed", "system", "tools"];

export function loadSettings() {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem(kName) ?? "{}");
  } catch {
    localStorage.removeItem(kName);
  }
  for (const id of kFields) {
    if (typeof kept[id] === "string") $(id).value = kept[id];
    $(id).addEventListener("change", keep);
  }
  reflect();
}

function keep() {
  localStorage.setItem(
    kName, JSON.stringify(Object.fromEntries(kFields.map((id) => [id, $(id).value]))));
  reflect();
}

function reflect() {
  $("effort-number").disabled = $("effort").value !== "number";
  $("temperature").disabled = $("effort").value !== "none";
}

// Members of a chat call, and `system`. What a field holds beyond a number's form is for the server
// to judge.
export function readSettings() {
  const effort = $("effort").value;
  const settings = {
    system: $("system").value.trim(),
    reasoning_effort: effort === "number" ? $("effort-number").valueAsNumber : effort,
  };
  if (effort === "none" && $("temperature").value !== "") {
    settings.temperature = $("temperature").valueAsNumber;
  }
  if ($("seed").value !== "") settings.seed = $("seed").valueAsNumber;
  if ($("max-tokens").value !== "") settings.max_tokens = $("max-tokens").valueAsNumber;
  const tools = $("tools").value.trim();
  if (tools !== "") {
    try {
      settings.tools = JSON.parse(tools);
    } catch (error) {
      throw new Refusal(0, `tools: wanted a JSON array, found: ${error.message}`);
    }
  }
  return settings;
}
