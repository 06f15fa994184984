/** Schedules: what a cell waits for, moves of cells within their rows, and the table as CSV. */

import { copy } from "./copy.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const LEAST_DRAG = 4;
// What makes a table; a change of it draws that table in place of an edited one.
const MAKES_A_TABLE = ["name", "p", "m", "chunks", "limit"];

export function schedule(explorer) {
  const { shown, form } = explorer;
  const csv = form.elements.csv;
  const about = explorer.querySelector(".about");
  const button = (name) => explorer.querySelector(`button.${name}`);
  let answer, cells, drawn, current, chosen, drag, focused;

  explorer.addEventListener("answer", ({ detail }) => {
    answer = detail;
    cells = new Map(answer.cells.map((cell) => [cell.id, cell]));
    drawn = new Map();
    for (const element of shown.querySelectorAll("[data-cell]")) {
      const cell = cells.get(element.dataset.cell);
      if (!cell || drawn.has(cell.id)) continue; // a schedule beside it is only looked at
      drawn.set(cell.id, element);
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", "-1");
      element.setAttribute("aria-label", `${element.textContent}: ${described(cell)}`);
      element.classList.toggle("on-path", cell.critical);
    }
    const svg = shown.querySelector("svg");
    svg.setAttribute("role", "group"); // no picture any more: its cells can be moved
    svg.setAttribute("aria-label", answer.title);
    if (!drawn.has(current)) {
      current = drawn.keys().next().value;
      chosen = false;
    }
    drawn.get(current)?.setAttribute("tabindex", "0");
    if (focused) drawn.get(current)?.focus();
    focused = false;
    showChosen();
    showPath();
    showBroken();
  });

  /** Marks the cell that buttons move; until one is chosen there is nothing to move. */
  function showChosen() {
    for (const name of ["earlier", "later"]) button(name).disabled = !chosen;
    if (chosen) look(current);
  }

  function showPath() {
    shown.querySelector("svg").classList.toggle("critical", path.checked && !answer.wrong);
  }

  const path = explorer.querySelector(".path");
  path.addEventListener("change", showPath);

  /** Says the rule that an edited table breaks, and marks the cell that breaks it. */
  function showBroken() {
    if (!answer.wrong) return;
    const { text, cell } = answer.wrong;
    const rule = document.createElement("p");
    rule.className = "rule";
    rule.setAttribute("role", "alert");
    rule.textContent = text;
    shown.querySelector(".picture").append(rule);
    drawn.get(cell)?.classList.add("broken");
  }

  /** Marks a cell, what it waits for, and what waits for it. */
  function look(id) {
    if (!id) return;
    const cell = cells.get(id);
    for (const element of drawn.values()) element.classList.remove("at", "before", "after");
    drawn.get(id).classList.add("at");
    for (const other of cell.waits_for) drawn.get(other)?.classList.add("before");
    for (const other of cell.waited_on_by) drawn.get(other)?.classList.add("after");
    about.textContent = described(cell);
  }

  /** The cells of one row of the table, in their order. */
  function rows() {
    const lines = answer.csv.trim().split("\n");
    return lines.map((line) => line.split(",").map((cell) => cell.trim()).filter(Boolean));
  }

  /** Moves a cell to another place in its row, and asks for the edited table. */
  function move(id, place) {
    const table = rows();
    const row = table[cells.get(id).device];
    const from = row.indexOf(id);
    const to = Math.min(Math.max(place(row, from), 0), row.length - 1);
    if (to === from) return false;
    row.splice(to, 0, ...row.splice(from, 1));
    explorer.set({ csv: table.map((line) => line.join(",")).join("\n") });
    return true;
  }

  const shift = (by) => move(current, (row, from) => from + by);
  button("earlier").addEventListener("click", () => shift(-1));
  button("later").addEventListener("click", () => shift(1));

  const cellAt = (event) => {
    const id = event.target.closest("[data-cell]")?.dataset.cell;
    return drawn.has(id) ? id : undefined;
  };
  shown.addEventListener("pointerover", (event) => drag || look(cellAt(event)));
  shown.addEventListener("focusin", (event) => {
    const id = cellAt(event);
    if (!id) return;
    drawn.get(current).setAttribute("tabindex", "-1");
    drawn.get(id).setAttribute("tabindex", "0");
    current = id;
    chosen = true;
    showChosen();
  });

  shown.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (!arrow || !cellAt(event)) return;
    event.preventDefault();
    const [along, down] = arrow;
    if (event.shiftKey) focused = !down && shift(along);
    else drawn.get(neighbour(cells.get(current), along, down))?.focus();
  });

  /** The cell before or after one in its row, or the one on the next device at about that time. */
  function neighbour({ id, device, start }, along, down) {
    const row = [...drawn.keys()].filter((other) => cells.get(other).device === device + down);
    const away = (other) => Math.abs(cells.get(other).start - start);
    if (down) return row.sort((one, other) => away(one) - away(other))[0];
    row.sort((one, other) => cells.get(one).start - cells.get(other).start);
    return row[row.indexOf(id) + along];
  }

  shown.addEventListener("pointerdown", (event) => {
    const id = cellAt(event);
    if (!id || event.pointerType === "touch" || event.button) return;
    event.preventDefault(); // no text is selected
    drawn.get(id).focus();
    drag = { id, x: event.clientX };
    shown.setPointerCapture(event.pointerId);
  });
  shown.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const by = event.clientX - drag.x;
    drawn.get(drag.id).classList.add("moving");
    drawn.get(drag.id).setAttribute("transform", `translate(${by} 0)`);
  });
  const drop = (event) => {
    if (!drag) return;
    const { id, x } = drag;
    const element = drawn.get(id);
    const at = middle(element);
    drag = undefined;
    element.classList.remove("moving");
    const before = (other) => other !== id && drawn.has(other) && middle(drawn.get(other)) < at;
    const moved =
      event.type === "pointerup" &&
      Math.abs(event.clientX - x) > LEAST_DRAG &&
      move(id, (row) => row.filter(before).length);
    if (!moved) element.removeAttribute("transform");
  };
  shown.addEventListener("pointerup", drop);
  shown.addEventListener("pointercancel", drop);

  form.addEventListener("input", ({ target }) => {
    if (MAKES_A_TABLE.includes(target.name)) csv.value = "";
  }, { capture: true });
  button("edit").addEventListener("click", () => {
    explorer.set({ csv: answer.csv });
    csv.focus();
  });
  button("copy").addEventListener("click", () => {
    copy(answer.csv);
    explorer.say("Copied.");
  });
  button("download").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([answer.csv], { type: "text/csv" }));
    link.download = "schedule.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });
  button("undo").addEventListener("click", () => explorer.set({ csv: "" }));
}

function described({ id, device, start, end, waits_for, waited_on_by }) {
  const [before, after] = [waits_for, waited_on_by].map((ids) => ids.join(", ") || "nothing");
  const time = `${id}, device ${device}, from ${start} to ${end}.`;
  const isFree = !waits_for.length && !waited_on_by.length; // as in a table that cannot run
  return isFree ? time : `${time} It waits for: ${before}. Waits for it: ${after}.`;
}

function middle(element) {
  const { left, width } = element.getBoundingClientRect();
  return left + width / 2;
}
