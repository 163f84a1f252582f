"use strict";
// Colours the nodes by why they refuse a group of pods, and filters tables. The page says everything without this.
(() => {
  const holder = document.getElementById("refusals");
  const groups = holder ? JSON.parse(holder.textContent) : [];
  const nodes = document.querySelectorAll("[data-node]");
  const byNumber = new Map(Array.from(nodes, (node) => [Number(node.dataset.node), node]));
  const legend = document.getElementById("refusal-legend");
  const buttons = document.querySelectorAll("button.show");
  const colours = 5;
  const clear = () => {
    for (const node of nodes) for (let i = 0; i < colours; i++) node.classList.remove("r" + i);
    legend.hidden = true;
    legend.replaceChildren();
    for (const button of buttons) button.setAttribute("aria-pressed", "false");
  };
  const show = (group) => {
    legend.append("Refusing " + group.pods[0] + ":");
    // The first reason of a node decides its colour; all of them stand where it is pointed at.
    group.reasons.forEach((reason, index) => {
      const name = "r" + Math.min(index, colours - 1);
      let coloured = 0;
      for (const number of group.nodes[index]) {
        const node = byNumber.get(number);
        if (node && !/\br\d\b/.test(node.className)) {
          node.classList.add(name);
          coloured++;
        }
      }
      if (coloured === 0) return;
      const swatch = document.createElement("span");
      swatch.className = "swatch " + name;
      legend.append(swatch, " " + reason);
    });
    legend.hidden = false;
  };
  for (const button of buttons) {
    button.hidden = false;
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") === "true";
      clear();
      if (pressed) return;
      show(groups[Number(button.dataset.group)]);
      button.setAttribute("aria-pressed", "true");
      document.getElementById("topology").scrollIntoView({ block: "nearest" });
    });
  }
  // Escape hides what a node tells.
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && document.activeElement instanceof HTMLElement) document.activeElement.blur();
  });
  const filter = document.getElementById("filter");
  if (filter) {
    filter.parentElement.hidden = false;
    filter.addEventListener("input", () => {
      const wanted = filter.value.toLowerCase();
      for (const table of document.querySelectorAll("details.table")) {
        if (wanted) table.open = true;
        for (const row of table.querySelectorAll("tbody tr")) row.hidden = !row.textContent.toLowerCase().includes(wanted);
      }
    });
  }
})();
