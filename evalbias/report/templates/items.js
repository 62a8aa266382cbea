// Filter and sort listed items. A page without this script shows the first ones, and the others behind "more".
for (const box of document.querySelectorAll(".look")) {
  const list = box.querySelector("ol"), items = [...box.querySelectorAll("li")], first = list.children.length;
  const numbers = new Map(items.map(item => [item, JSON.parse(item.dataset.numbers)]));
  const names = [...new Set(items.flatMap(item => Object.keys(numbers.get(item))))];
  const bar = document.createElement("div"), status = document.createElement("p");
  const add = (tag, set) => bar.appendChild(Object.assign(document.createElement(tag), set));
  let by = "", down = true, all = false;  // sorted by nothing: as listed
  const show = () => {
    const words = filter.value.toLowerCase().split(/\s+/), value = item => numbers.get(item)[by] ?? NaN;
    const compare = (a, b) => isNaN(a) - isNaN(b) || (down ? b - a : a - b) || 0;  // undefined numbers last
    list.append(...[...items].sort((a, b) => compare(value(a), value(b))));
    const found = [...list.children].filter(item => words.every(word => item.textContent.toLowerCase().includes(word)));
    const shown = all || words.join("") ? found : found.slice(0, first);
    for (const item of items) item.hidden = !shown.includes(item);
    for (const [name, button] of buttons) {
      button.ariaPressed = name === by;
      button.textContent = name ? `by ${name}${name === by ? (down ? " ↓" : " ↑") : ""}` : "as listed";
    }
    more.hidden = items.length <= first || words.join("") !== "";  // what is found is shown whole
    more.textContent = all ? `show ${first}` : `show all ${items.length}`;
    status.textContent = `${shown.length} of ${items.length} items are shown`;
  };
  const filter = add("input", {type: "search", placeholder: "filter by words", ariaLabel: "filter by words"});
  const sort = name => { down = name !== by || !down; by = name; show(); };
  const buttons = (names.length ? ["", ...names] : []).map(name => [name, add("button", {onclick: () => sort(name)})]);
  const more = add("button", {onclick: () => { all = !all; show(); }});
  filter.oninput = show;
  bar.className = "tools"; status.className = "note"; status.role = "status";
  box.querySelector("details")?.remove();
  box.prepend(bar, status);
  show();
}
