// Amounts and times as people write them.

const UNITS = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

export const bytes = (amount) => {
  let unit = 0;
  let value = amount;
  while (Math.abs(value) >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit++;
  }
  return `${Math.round(value * 10) / 10}${UNITS[unit]}`;
};

export const cpu = (milli) => String(Math.abs(milli) >= 10000 ? Math.round(milli / 100) / 10 : milli / 1000);

export const percent = (part, whole) => (whole > 0 ? (part * 100) / whole : 0);

export const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;

// A duration from milliseconds.
export const duration = (ms) => {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
};

// A duration as scenarios have it, in whole seconds but for short ones.
export const span = (ms) => {
  const seconds = ms < 10000 ? Math.round(ms / 100) / 10 : Math.round(ms / 1000);
  const parts = [[Math.floor(seconds / 3600), "h"], [Math.floor((seconds % 3600) / 60), "m"], [Math.round((seconds % 60) * 10) / 10, "s"]];
  return parts.filter(([amount]) => amount > 0).map(([amount, unit]) => `${amount}${unit}`).join(" ") || "0s";
};

// How long ago something was, in whole seconds.
export const ago = (ms) => (ms < 1000 ? "a moment ago" : `${duration(Math.floor(ms / 1000) * 1000)} ago`);

// Made once: the names of a locale take longer to look up than a row to draw.
const CLOCK = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });

export const clock = (ms) => CLOCK.format(ms);

// The name without its namespace.
export const short = (name) => name.slice(name.indexOf("/") + 1);
