/** Copies text, also where a page has come by plain HTTP and the browser's newer way is shut. */
export function copy(text) {
  const field = document.createElement("textarea");
  const focused = document.activeElement;
  field.value = text;
  document.body.append(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  focused.focus();
}
