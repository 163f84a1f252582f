// Makes elements. Texts are only ever set as texts, so nothing that a cluster says is taken for markup.

const SVG = "http://www.w3.org/2000/svg";

const fill = (element, properties, children) => {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
};

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const svg = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
export const byId = (id) => document.getElementById(id);

// A bar that is filled to so many percent.
export const bar = (percent, name) => {
  const filled = h("u");
  filled.style.width = `${Math.min(100, Math.max(0, percent)).toFixed(1)}%`;
  if (percent > 100) filled.className = "over";
  return h("i", name ? { role: "img", "aria-label": name } : { "aria-hidden": "true" }, filled);
};

// Sets a text only where it is another one: what does not change is not read out again.
export const say = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
