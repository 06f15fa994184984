for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const head = button.parentElement, row = head.parentElement;
    const body = head.closest("table").tBodies[0];
    const place = [...row.children].indexOf(head);
    const up = head.getAttribute("aria-sort") !== "ascending";
    for (const other of row.children) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const text = (line) => line.children[place].textContent;
    const number = (line) => (text(line) === "" ? -Infinity : parseFloat(text(line)));
    const compare = head.classList.contains("number")
      ? (a, b) => number(a) - number(b) || 0
      : (a, b) => text(a).localeCompare(text(b), undefined, { numeric: true });
    const lines = [...body.rows].sort(compare);
    body.append(...(up ? lines : lines.reverse()));
  });
}
