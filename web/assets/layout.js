/** Layouts: axes of the mesh are dragged onto dims of the array, or sent there by select boxes. */

const NO_DIM = "";

export function layout(explorer) {
  const board = explorer.querySelector(".board");
  let answer;

  explorer.addEventListener("answer", ({ detail }) => {
    const focused = board.contains(document.activeElement) && document.activeElement.id;
    answer = detail;
    const dims = answer.dims.map(({ name, size }) => column(name, `dim ${name}, size ${size}`));
    board.replaceChildren(...dims, column(NO_DIM, "splits nothing"));
    if (focused) document.getElementById(focused)?.focus();
  });

  /** Splits a dim by an axis, inside of the axes that split it already. */
  function split(axis, dim) {
    const fields = {};
    for (const { name, axes } of answer.dims) {
      const others = axes.filter((other) => other !== axis);
      fields[`${name}_axes`] = (name === dim ? [...others, axis] : others).join(" ");
    }
    explorer.set(fields);
  }

  function column(dim, title) {
    const made = document.createElement("div");
    made.className = "dim";
    made.dataset.dim = dim;
    made.append(title);
    const inside = answer.dims.find(({ name }) => name === dim);
    const axes = inside
      ? inside.axes.map((axis) => answer.axes.find(({ name }) => name === axis))
      : answer.axes.filter((axis) => axis.dim === null);
    made.append(...axes.map(chip));
    made.addEventListener("dragover", (event) => {
      event.preventDefault();
      made.classList.add("over");
    });
    made.addEventListener("dragleave", () => made.classList.remove("over"));
    made.addEventListener("drop", (event) => {
      event.preventDefault();
      made.classList.remove("over");
      split(event.dataTransfer.getData("text/plain"), dim);
    });
    return made;
  }

  function chip({ name, size, dim }) {
    const made = document.createElement("label");
    made.className = "axis";
    made.draggable = true;
    made.dataset.axis = name;
    made.addEventListener("dragstart", (event) => event.dataTransfer.setData("text/plain", name));
    const select = document.createElement("select");
    select.id = `layout-axis-${name}`;
    for (const choice of [NO_DIM, ...answer.dims.map((one) => one.name)]) {
      select.add(new Option(choice || "nothing", choice, false, choice === (dim ?? NO_DIM)));
    }
    select.addEventListener("input", (event) => {
      event.stopPropagation(); // it is no field of the form
      split(name, select.value);
    });
    made.append(`${name} (${size}) splits`, select);
    return made;
  }
}
