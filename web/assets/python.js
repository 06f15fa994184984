/** Python in a worker of this page: it is started by the first question, never before. */

const WORKER = new URL("./worker.js", import.meta.url);
const LOADING = "Loading Python, once ...";

export class Python {
  #say;
  #worker = null;
  #ready = false;
  #asked = null;
  #waiting = null;
  #timer = null;
  #id = 0;

  /** @param {(text: string) => void} say shows what Python does at present, or nothing. */
  constructor(say) {
    this.#say = say;
  }

  /**
   * Asks for the answer to a form. One question is in flight, and the newest waits for it; an older
   * one is dropped, and its answer is null.
   *
   * @param {string} name the form's name in jaxpar.explore.
   * @param {object} form its fields.
   * @param {number} seconds after which Python is ended, if it runs for so long.
   * @returns {Promise<{answer: object, html: string} | null>}
   */
  ask(name, form, seconds = Infinity) {
    return new Promise((resolve) => {
      this.#waiting?.resolve(null);
      this.#waiting = { name, form, seconds, resolve };
      this.#next();
    });
  }

  /** Ends Python while it is at work; what was asked is answered by saying so. */
  stop() {
    if (this.#asked) this.#fail("Stopped.");
  }

  /** Ends Python; the next question starts it again. */
  end() {
    this.#worker?.terminate();
    clearTimeout(this.#timer);
    this.#worker = null;
    this.#ready = false;
  }

  #next() {
    if (this.#asked || !this.#waiting) return;
    this.#asked = this.#waiting;
    this.#waiting = null;
    this.#worker ??= this.#start();
    if (this.#ready) this.#limit();
    const { name, form } = this.#asked;
    this.#worker.postMessage({ id: ++this.#id, name, form });
  }

  #start() {
    this.#say(LOADING);
    const worker = new Worker(WORKER, { type: "module" });
    worker.addEventListener("message", ({ data }) => this.#hear(data));
    worker.addEventListener("error", (event) => this.#hear({ failure: event.message }));
    return worker;
  }

  #hear({ ready, failure, id, ...reply }) {
    if (ready) {
      this.#ready = true;
      this.#limit();
    } else if (id === this.#id) {
      this.#answer(reply);
    } else if (failure !== undefined) {
      this.#fail(`Python failed: ${failure || "a file of it cannot be loaded"}; try again.`);
    }
  }

  #limit() {
    this.#say("Python is at work ...");
    const { seconds } = this.#asked;
    if (seconds === Infinity) return;
    const text =
      `Your code ran for ${seconds} seconds and was ended; look for a loop that does not end.`;
    this.#timer = setTimeout(() => this.#fail(text), seconds * 1000);
  }

  #fail(text) {
    this.end();
    this.#answer({ answer: { error: text }, html: "" });
  }

  #answer(reply) {
    clearTimeout(this.#timer);
    this.#say("");
    const { resolve } = this.#asked;
    this.#asked = null;
    resolve(reply);
    this.#next();
  }
}
