/** Memory and plans: the formula of a term, and the nearest layout that fits. */

export function memory(explorer) {
  const { shown } = explorer;
  const about = explorer.querySelector(".about");
  const nearest = explorer.querySelector(".nearest");
  let answer;

  explorer.addEventListener("answer", ({ detail }) => {
    answer = detail;
    nearest.hidden = !answer.nearest;
    if (answer.nearest) nearest.textContent = `Take the nearest that fits: ${answer.nearest.words}`;
    const svg = shown.querySelector("svg");
    svg.setAttribute("role", "group"); // no picture any more: its terms can be chosen
    svg.setAttribute("aria-label", answer.title);
    for (const element of shown.querySelectorAll("[data-term]")) {
      const { name, words } = termOf(element);
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", "0");
      const drawn = element.querySelector("text")?.textContent ?? "";
      element.setAttribute("aria-label", `${drawn} ${name}, ${words}: show the formula`.trim());
    }
  });

  function termOf(element) {
    const picture = element.closest("[data-of]").dataset.of;
    return answer.terms.find(({ of, name }) => of === picture && name === element.dataset.term);
  }

  function choose(event) {
    const element = event.target.closest("[data-term]");
    if (!element) return;
    event.preventDefault();
    for (const other of shown.querySelectorAll("[data-term]")) {
      other.classList.toggle("at", other === element);
    }
    const { name, words, formula, filled } = termOf(element);
    about.textContent = `${name}: ${formula} = ${filled} = ${words}`;
  }

  shown.addEventListener("click", choose);
  shown.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") choose(event);
  });
  nearest.addEventListener("click", () => explorer.set(answer.nearest.form));
}
