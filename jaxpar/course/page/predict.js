// Asks for a prediction below each question of a lesson, keeps it in the browser, and shows what was
// measured only then, with the prediction beside it. Without this file a page shows everything.

const KEPT = "jaxpar-prediction:";

/** The value of a number or a calculation such as `3/4 * 2 kB`, or NaN; `units` are by name. */
function quantity(text, units) {
  const match = /^([\d\s.()+*/-]+?)\s*([a-z]*)$/.exec(
    text.trim().toLowerCase().replace(/,(?=\d{3})/g, ""),
  );
  if (!match || !Object.hasOwn(units, match[2])) return NaN;
  const tokens = match[1].match(/\d+\.?\d*|\.\d+|[()+*/-]/g) ?? [];
  const value = sum(tokens);
  return tokens.length === 0 && value >= 0 ? value * units[match[2]] : NaN;
}

function sum(tokens) {
  let value = product(tokens);
  while (tokens[0] === "+" || tokens[0] === "-") {
    value += tokens.shift() === "+" ? product(tokens) : -product(tokens);
  }
  return value;
}

function product(tokens) {
  let value = factor(tokens);
  while (tokens[0] === "*" || tokens[0] === "/") {
    value = tokens.shift() === "*" ? value * factor(tokens) : value / factor(tokens);
  }
  return value;
}

function factor(tokens) {
  const token = tokens.shift();
  if (token !== "(") return token === undefined ? NaN : Number(token);
  const value = sum(tokens);
  return tokens.shift() === ")" ? value : NaN;
}

/** What was predicted: `{typed, value}`, `{skipped: true}`, or null while a question is open. */
function prediction(question) {
  return JSON.parse(localStorage.getItem(KEPT + question.id));
}

function keep(question, predicted) {
  if (predicted) localStorage.setItem(KEPT + question.id, JSON.stringify(predicted));
  else localStorage.removeItem(KEPT + question.id);
  update();
  question.querySelector(predicted ? ".kept button" : "input").focus({ preventScroll: true });
}

function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function button(text, onclick) {
  return element("button", { type: "button", onclick }, text);
}

/** Puts a field below a question. */
function addField(question) {
  const units = JSON.parse(question.dataset.units);
  const field = element("input", { type: "text", autocomplete: "off" });
  const wrong = element("p", { className: "wrong", role: "alert" });
  const form = element(
    "form",
    {
      className: "prediction",
      onsubmit(event) {
        event.preventDefault();
        const value = quantity(field.value, units);
        wrong.textContent = Number.isFinite(value) ? "" : `Here ${question.dataset.example}.`;
        if (Number.isFinite(value)) keep(question, { typed: field.value.trim(), value });
      },
    },
    element("label", {}, "Your prediction ", field),
    element("button", { type: "submit" }, "Keep"),
    button("Skip", () => keep(question, { skipped: true })),
  );
  const kept = element("p", { className: "kept" });
  question.append(form, wrong, kept);
}

function showQuestion(question) {
  const predicted = prediction(question);
  question.querySelector("form").hidden = predicted !== null;
  const words = predicted?.skipped ? "Skipped. " : `Your prediction: ${predicted?.typed}. `;
  question
    .querySelector(".kept")
    .replaceChildren(...(predicted ? [words, button("Change", () => keep(question, null))] : []));
}

function showAnswer(answer) {
  const predicted = prediction(document.getElementById(answer.dataset.question));
  answer.hidden = predicted === null;
  answer.querySelector(".compared")?.remove();
  if (!predicted || predicted.skipped) return;
  const measured = Number(answer.dataset.measured);
  const near = Math.abs(predicted.value - measured) <= Number(answer.dataset.right) * Math.abs(measured);
  const ratio = predicted.value / measured;
  const times = ratio > 0 && Number.isFinite(ratio) ? `, ${inWords(ratio)}` : "";
  const words = near ? "As you predicted." : `You predicted ${predicted.typed}${times}.`;
  answer.querySelector("p").append(element("strong", { className: "compared" }, ` ${words}`));
}

/** How far a prediction is from what was measured: `3.2 times as much`, `143 times too little`. */
function inWords(ratio) {
  const times = Number((ratio > 1 ? ratio : 1 / ratio).toPrecision(3));
  return ratio > 1 ? `${times} times as much` : `${times} times too little`;
}

/** The elements from below the heading `from` to above the heading `to`. */
function between(from, to) {
  const found = [];
  for (let one = from.nextElementSibling; one && one !== to; one = one.nextElementSibling) {
    found.push(one);
  }
  return found;
}

const questions = [...document.querySelectorAll(".question")];
const measure = document.getElementById("measure");
const exercises = document.getElementById("exercises");
const folded = measure && exercises ? between(measure, exercises) : [];
const first = questions.filter(
  (question) =>
    measure && measure.compareDocumentPosition(question) & Node.DOCUMENT_POSITION_PRECEDING,
);
const notice = element("div", { className: "notice", hidden: true });
const links = folded.flatMap((one) =>
  one.id ? [...document.querySelectorAll(`nav a[href$="#${one.id}"]`)] : [],
);

function update() {
  questions.forEach(showQuestion);
  document.querySelectorAll(".measured").forEach(showAnswer);
  const open = first.filter((question) => prediction(question) === null);
  for (const one of [...folded, ...links]) one.classList.toggle("folded", open.length > 0);
  notice.hidden = open.length === 0;
  if (open.length === 0) return;
  notice.replaceChildren(
    element(
      "p",
      {},
      "What is measured opens when you have predicted it. ",
      `Open: ${open.length} of ${first.length} questions. `,
      element("a", { href: `#${open[0].id}` }, "Go to the first"),
    ),
    button("Look without predicting", () =>
      open.forEach((question) => keep(question, { skipped: true })),
    ),
  );
}

questions.forEach(addField);
measure?.after(notice);
update();
