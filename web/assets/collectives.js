/** Collectives: goes through the pictures of an algorithm, one step after the other. */

export function collectives(explorer) {
  const place = explorer.querySelector(".place");
  const button = (name) => explorer.querySelector(`button.${name}`);
  const goes = { first: () => 0, back: (at) => at - 1, next: (at) => at + 1, last: () => Infinity };
  let answer;

  explorer.addEventListener("answer", ({ detail }) => {
    answer = detail;
    const { frame, frames, headings } = answer;
    place.textContent = `${frame + 1} of ${frames}: ${headings[frame]}`;
    for (const name of ["first", "back"]) button(name).disabled = frame === 0;
    for (const name of ["next", "last"]) button(name).disabled = frame === frames - 1;
  });

  for (const [name, where] of Object.entries(goes)) {
    button(name).addEventListener("click", () => {
      explorer.set({ frame: Math.min(where(answer.frame), answer.frames - 1) });
    });
  }
}
