/**
 * <jaxpar-explorer name="...">: asks Python for the answer to its form whenever a control changes,
 * and keeps the form in the address. The HTML within it holds the controls and the first answer.
 * Controls that an answer names as unused are marked so.
 */

import { collectives } from "./collectives.js";
import { layout } from "./layout.js";
import { memory } from "./memory.js";
import { Python } from "./python.js";
import { schedule } from "./schedule.js";

const ROW_END = ";"; // ends a line of text in the address, where scripts of the theme allow none
const MORE = { collectives, layout, memory, schedule };

/** An element of the page, with an event "answer" whose detail is each answer that it shows. */
class Explorer extends HTMLElement {
  #python;
  #restore = () => this.restore();

  connectedCallback() {
    this.name = this.getAttribute("name");
    this.form = this.querySelector("form");
    this.shown = this.querySelector(".answer");
    this.error = this.querySelector(".error");
    this.status = this.querySelector(".status");
    this.#python = new Python((text) => this.say(text));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => this.changed());
    this.form.addEventListener("reset", () => setTimeout(() => this.changed()));
    window.addEventListener("hashchange", this.#restore);
    MORE[this.name](this);
    this.#tell(JSON.parse(this.querySelector('script[type="application/json"]').textContent));
    this.restore();
  }

  disconnectedCallback() {
    window.removeEventListener("hashchange", this.#restore);
    this.#python.end();
  }

  /** Shows a word on what has happened, which a screen reader says. */
  say(text) {
    this.status.textContent = text;
  }

  /** The controls that Python is asked about. */
  get controls() {
    return [...this.form.elements].filter((control) => control.name);
  }

  /** Sets some controls, given by their names, as their reader would. */
  set(fields) {
    for (const [name, wanted] of Object.entries(fields)) fill(this.form.elements[name], wanted);
    this.changed();
  }

  /** Keeps the form in the address, and asks for its answer. */
  async changed() {
    this.shown.classList.add("stale");
    const state = new URLSearchParams();
    const form = {};
    for (const control of this.controls) {
      form[control.name] = value(control);
      if (String(form[control.name]) !== String(first(control))) {
        state.set(control.name, String(form[control.name]).replaceAll("\n", ROW_END));
      }
    }
    const address = String(state) ? `#${state}` : location.pathname + location.search;
    history.replaceState(history.state, "", address);
    const reply = await this.#python.ask(this.name, form);
    if (reply) this.#show(reply);
  }

  /** Takes the form from the address, if it differs. */
  restore() {
    if (location.hash && !location.hash.includes("=")) return; // a heading of the page
    const state = new URLSearchParams(location.hash.slice(1));
    const controls = this.controls.filter((control) => {
      let wanted = state.get(control.name) ?? String(first(control));
      if (control.type === "textarea") wanted = wanted.replaceAll(ROW_END, "\n");
      if (wanted === String(value(control))) return false;
      fill(control, wanted);
      return true;
    });
    if (controls.length) this.changed();
  }

  #show({ answer, html }) {
    this.error.textContent = answer.error ?? "";
    this.shown.classList.toggle("stale", Boolean(answer.error));
    if (answer.error) return;
    const picture = this.shown.querySelector(".picture");
    const scrolled = picture ? picture.scrollLeft : 0;
    this.shown.innerHTML = html;
    const drawn = this.shown.querySelector(".picture");
    if (drawn) drawn.scrollLeft = scrolled;
    this.#tell(answer);
  }

  #tell(answer) {
    for (const { name, parentElement } of this.controls) {
      parentElement.classList.toggle("unused", Boolean(answer.unused?.includes(name)));
    }
    this.dispatchEvent(new CustomEvent("answer", { detail: answer }));
  }
}

/** What a control holds, as Python takes it. */
function value(control) {
  return control.type === "checkbox" ? control.checked : typed(control, control.value);
}

/** What a control held when the page came. */
function first(control) {
  if (control.type === "checkbox") return control.defaultChecked;
  if (control.type !== "select-one") return typed(control, control.defaultValue);
  return [...control.options].find((option) => option.defaultSelected).value;
}

function typed(control, text) {
  return control.type === "number" && text !== "" ? Number(text) : text;
}

function fill(control, wanted) {
  if (control.type === "checkbox") control.checked = String(wanted) === "true";
  else control.value = wanted;
}

customElements.define("jaxpar-explorer", Explorer);
