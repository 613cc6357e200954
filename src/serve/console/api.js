// Requests to the server that this page came from, with the key of this tab.

const kKeyName = "fathom.key";

export function key() {
  return sessionStorage.getItem(kKeyName) ?? "";
}

export function setKey(value) {
  if (value === "") sessionStorage.removeItem(kKeyName);
  else sessionStorage.setItem(kKeyName, value);
}

// What the server said instead of an answer, in its words; status 0: it was not reached.
export class Refusal extends Error {
  constructor(status, message, retryAfterS = 0) {
    super(message);
    this.status = status;
    this.retryAfterS = retryAfterS;
  }
}

// `path` is below the folder of the console, so that a proxy may serve it under any prefix.
export async function request(path, options = {}) {
  const headers = { ...options.headers };
  if (key() !== "") headers.Authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "the server cannot be reached");
  }
  if (response.ok) return response;
  throw new Refusal(
    response.status, wordsOf(await response.text()) || response.statusText,
    Number(response.headers.get("Retry-After") ?? 0));
}

function wordsOf(body) {
  try {
    return JSON.parse(body).error.message;
  } catch {
    return body;
  }
}

// The data of each event of a stream of server-sent events. Comments and other fields are passed
// over.
export async function* events(response) {
  const decoder = new TextDecoder();
  const reader = response.body.getReader();
  let rest = "";
  let data = [];
  while (true) {
    const { done, value } = await reader.read();
    const lines = (rest + decoder.decode(value, { stream: !done })).split(/\r\n|\n/);
    rest = lines.pop();
    for (const line of lines) {
      if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      if (line !== "" || data.length === 0) continue;
      yield data.join("\n");
      data = [];
    }
    if (done) return;
  }
}
