/**
 * <jaxpar-exercise name="...">: an editor whose text this browser keeps, the verdict on it, and the
 * text by which what is solved moves to a clone.
 */

import { copy } from "./copy.js";
import { Python } from "./python.js";
import { SOLVED } from "./solved.js";

const SECONDS = 20;
const INDENT = "    ";
const SOURCE = "jaxpar source ";

class Exercise extends HTMLElement {
  #python;

  connectedCallback() {
    this.name = this.getAttribute("name");
    this.editor = this.querySelector(".editor");
    this.verdict = this.querySelector(".verdict");
    this.status = this.querySelector(".status");
    this.progress = this.querySelector(".progress");
    this.stop = this.querySelector(".stop");
    this.#python = new Python((text) => {
      this.status.textContent = text;
      this.stop.hidden = text === "";
    });
    this.editor.value = localStorage.getItem(SOURCE + this.name) ?? this.editor.defaultValue;
    this.editor.addEventListener("input", () => this.#keep());
    this.editor.addEventListener("keydown", (event) => this.#key(event));
    this.querySelector(".check").addEventListener("click", () => this.check());
    this.stop.addEventListener("click", () => this.#python.stop());
    this.querySelector(".reset").addEventListener("click", () => this.reset());
    this.querySelector(".copy").addEventListener("click", () => this.#copy());
    this.querySelector(".take").addEventListener("toggle", () => this.#showProgress());
  }

  disconnectedCallback() {
    this.#python.end();
  }

  /** Shows the verdict on the text of the editor. */
  async check() {
    const source = this.editor.value;
    const reply = await this.#python.ask("verdict", { exercise: this.name, source }, SECONDS);
    if (!reply) return;
    const { error, passed, lines } = reply.answer;
    this.verdict.hidden = false; // first, or what it says is not read aloud
    this.verdict.textContent = error ?? lines.join("\n");
    this.verdict.classList.toggle("passed", Boolean(passed));
    if (passed) localStorage.setItem(SOLVED + this.name, source);
  }

  /** Puts the stub in place of the text, which undoing in the editor brings back. */
  reset() {
    this.editor.select();
    insert(this.editor, this.editor.defaultValue);
    this.verdict.hidden = true;
  }

  #keep() {
    localStorage.setItem(SOURCE + this.name, this.editor.value);
  }

  #key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.check();
    } else if (event.key === "Enter") {
      event.preventDefault();
      insert(this.editor, "\n" + indentation(this.editor));
    } else if (event.key === "Tab" && !event.shiftKey && !this.leaving) {
      event.preventDefault();
      insert(this.editor, INDENT);
    }
    this.leaving = event.key === "Escape"; // the next Tab leaves the editor, as Tab does elsewhere
  }

  async #showProgress() {
    const solved = {};
    for (const key of Object.keys(localStorage).sort()) {
      if (key.startsWith(SOLVED)) solved[key.slice(SOLVED.length)] = localStorage.getItem(key);
    }
    const reply = await this.#python.ask("progress", { solved });
    if (reply) this.progress.value = reply.answer.error ?? reply.answer.text;
  }

  #copy() {
    copy(this.progress.value);
    this.status.textContent = "Copied.";
  }
}

/** Types text into an editor in place of its selection, so that it can be undone. */
function insert(editor, text) {
  editor.focus();
  document.execCommand("insertText", false, text);
}

/** How far the line at the caret is indented, and one step more after a colon. */
function indentation(editor) {
  const before = editor.value.slice(0, editor.selectionStart).split("\n").at(-1);
  return before.match(/^ */)[0] + (before.trimEnd().endsWith(":") ? INDENT : "");
}

customElements.define("jaxpar-exercise", Exercise);
