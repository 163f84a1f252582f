// The connection to the server: the token, the stream of changes, and questions.
//
// The token comes with the address, behind `#`, where browsers send it to nobody. It is kept for this tab alone.

const KEY = "berth-token";
// The server tells every few seconds that it is there. Who hears nothing for so long is cut off.
const SILENCE = 10000;
const BACKOFF_MAX = 5000;

export const takeToken = () => {
  const given = decodeURIComponent(location.hash.slice(1));
  if (/^[\x21-\x7e]{8,}$/.test(given) && !document.getElementById(given)) {
    sessionStorage.setItem(KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(KEY);
};

export const setToken = (token) => sessionStorage.setItem(KEY, token);

const headers = () => ({ Authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}` });

// Asks the server; throws what it says if it refuses.
export const ask = async (path, options = {}) => {
  const response = await fetch(`/api/${path}`, { ...options, headers: headers(), cache: "no-store" });
  const answer = await response.json().catch(() => ({ error: response.statusText || `status ${response.status}` }));
  if (!response.ok || answer?.error) throw new Error(answer?.error ?? `status ${response.status}`);
  return answer;
};

// Follows the cluster for ever. `told` hears of events by their names, and of `lost` and `denied`.
export const follow = async (told) => {
  let wait = 500;
  for (;;) {
    try {
      if (!(await once(told, () => (wait = 500)))) return;
    } catch {
      // The server is gone, or silent: try again.
    }
    told("lost");
    await pause(wait);
    wait = Math.min(wait * 2, BACKOFF_MAX);
  }
};

// Waits, but no longer than until the browser has a network again.
const pause = (ms) =>
  new Promise((done) => {
    const timer = setTimeout(done, ms);
    addEventListener("online", () => [clearTimeout(timer), done()], { once: true });
  });

// One connection until it ends. Says whether to try again.
const once = async (told, opened) => {
  const abort = new AbortController();
  const cut = () => abort.abort();
  let silence = setTimeout(cut, SILENCE);
  // Without a network nothing arrives: waiting for the silence would show old data as live.
  addEventListener("offline", cut);
  try {
    const response = await fetch("/api/events", { headers: headers(), cache: "no-store", signal: abort.signal });
    if (response.status === 401) {
      told("denied");
      return false;
    }
    if (!response.ok) throw new Error(response.statusText);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return true;
      clearTimeout(silence);
      silence = setTimeout(cut, SILENCE);
      rest += value;
      for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
        const [name, data] = rest.slice(0, end).split("\n");
        rest = rest.slice(end + 2);
        opened();
        told(name.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
      }
    }
  } finally {
    clearTimeout(silence);
    removeEventListener("offline", cut);
    abort.abort();
  }
};
