// Making elements. Text goes in as text: what a model or a server wrote is never read as markup.

export const $ = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

export function make(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// Gives a node these children. Those that are as before stay, and with them what is selected in
// them; a screen reader hears of the others alone.
export function update(parent, children) {
  children.forEach((child, i) => {
    const old = parent.children[i];
    if (!old) parent.append(child);
    else if (!old.isEqualNode(child)) old.replaceWith(child);
  });
  while (parent.children.length > children.length) parent.lastElementChild.remove();
}

// Text that grows. Fenced blocks become <pre>; a line that may yet become a fence is held back.
export class GrowingText {
  constructor(parent) {
    this.parent = parent;
    this.line = "";    // of the current line, what is held back
    this.shown = false;  // some of the current line is shown
    this.code = false;
    this.node = null;
  }

  add(text) {
    const lines = text.split("\n");
    lines.forEach((part, i) => {
      this.take(part);
      if (i + 1 < lines.length) this.endLine();
    });
  }

  end() {
    if (/^ {0,3}```/.test(this.line)) this.line = "";
    this.show(this.line);
    this.line = "";
  }

  take(part) {
    if (part === "") return;
    if (this.shown) return this.show(part);
    this.line += part;
    if (/^ {0,3}(`{0,2}$|```)/.test(this.line)) return;
    this.shown = true;
    this.show(this.line);
    this.line = "";
  }

  endLine() {
    if (!this.shown && /^ {0,3}```/.test(this.line)) {
      this.code = !this.code;
      this.node = null;
    } else {
      this.show(`${this.line}\n`);
    }
    this.line = "";
    this.shown = false;
  }

  show(text) {
    if (text === "") return;
    if (this.node === null) {
      if (text.trim() === "" && !this.code) return;
      this.node = document.createTextNode("");
      const code = this.code ? make("code", {}, this.node) : null;
      this.parent.append(this.code ? make("pre", { tabindex: "0" }, code)
                                   : make("div", { class: "text" }, this.node));
    }
    this.node.appendData(text);
  }
}
