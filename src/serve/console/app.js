// The console: which page is shown, the keyboard, the key of the server.

import { Refusal, key, request, setKey } from "./api.js";
import * as chat from "./chat.js";
import { $ } from "./dom.js";
import { loadSettings } from "./settings.js";
import { watchState } from "./state.js";

function showPage() {
  const state = location.hash === "#state";
  $("chat").hidden = state;
  $("state").hidden = !state;
  for (const [id, here] of [["to-chat", !state], ["to-state", state]]) {
    if (here) $(id).setAttribute("aria-current", "page");
    else $(id).removeAttribute("aria-current");
  }
  document.title = `fathom: ${state ? "state" : "chat"}`;
  watchState(state);
  if (!state) $("message").focus();
}

// Where the page is shown already, the focus stays where it is.
function go(page) {
  if ($(page).hidden) location.hash = page;
}

async function showServed() {
  try {
    const list = await (await request("v1/models")).json();
    const model = list.data[0];
    $("served").textContent = `${model.id}, context ${model.context_length} tokens`;
  } catch (error) {
    $("served").textContent = error.message;
    if (error instanceof Refusal && error.status === 401) openKey(error.message);
  }
}

function openKey(why = "") {
  $("key-why").textContent = why;
  $("key-why").hidden = why === "";
  $("key").value = key();
  if (!$("key-dialog").open) $("key-dialog").showModal();
  $("key").focus();
}

function useKey(event) {
  event.preventDefault();
  setKey($("key").value.trim());
  $("key-dialog").close();
  showServed();
}

function openSettings() {
  go("chat");
  $("settings").open = !$("settings").open;
  if ($("settings").open) $("effort").focus();
}

const kKeys = {
  "?": () => $("help-dialog").showModal(),
  "/": () => { go("chat"); $("message").focus(); },
  "n": () => { go("chat"); chat.startAnew(); },
  "t": chat.toggleThinking,
  ",": openSettings,
  "c": () => go("chat"),
  "s": () => go("state"),
  "k": () => openKey(),
};

function pressed(event) {
  if (event.isComposing || event.ctrlKey || event.altKey || event.metaKey) return;
  if (document.querySelector("dialog[open]")) return;
  const field = event.target.closest("input, textarea, select");
  if (event.key === "Escape") {
    if (chat.isRunning()) chat.stop();
    else field?.blur();
    return;
  }
  if (event.target === $("message") && event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    chat.send();
    return;
  }
  if (field || !Object.hasOwn(kKeys, event.key)) return;
  event.preventDefault();
  kKeys[event.key]();
}

loadSettings();
document.addEventListener("keydown", pressed);
document.addEventListener("key", (event) => openKey(event.detail));
window.addEventListener("hashchange", showPage);
$("composer").addEventListener("submit", (event) => { event.preventDefault(); chat.send(); });
$("stop").addEventListener("click", chat.stop);
$("fresh").addEventListener("click", chat.startAnew);
$("key-open").addEventListener("click", () => openKey());
$("key-form").addEventListener("submit", useKey);
$("key-cancel").addEventListener("click", () => $("key-dialog").close());
$("help-open").addEventListener("click", () => $("help-dialog").showModal());
showPage();
showServed();
