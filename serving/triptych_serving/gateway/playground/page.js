// Parts that all tasks of the page use.

/** Make an element with attributes and children. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

export function byId(id) {
  return document.getElementById(id);
}

/** Show a message for the user; errors are red. */
export function say(text, isError = false) {
  const status = byId("status");
  status.textContent = text;
  status.classList.toggle("error", isError);
}

/** Mark an element while its text is streamed: screen readers read it once, at the end. */
export function setBusy(target, isBusy) {
  target.classList.toggle("busy", isBusy);
  target.setAttribute("aria-busy", String(isBusy));
}

/** Milliseconds of a response's timing, as text. */
export function timeOf(timing, began) {
  const server = ["queueSeconds", "preprocessSeconds", "inferenceSeconds", "postprocessSeconds"];
  const seconds = server.reduce((sum, name) => sum + (timing?.[name] ?? 0), 0);
  return `${Math.round(seconds * 1000)} ms on the server, ${Math.round(performance.now() - began)} ms here`;
}

/** Rows of a label, a bar and a percentage. */
export function bars(results) {
  return results.map(({ label, score, action }) => {
    const name = action ? element("button", { type: "button" }, label) : element("span", {}, label);
    if (action) name.addEventListener("click", action);
    const percent = `${(100 * score).toFixed(1)} %`;
    return element("div", { class: "result" }, name, element("meter", { min: 0, max: 1, value: score, "aria-label": `${label}: ${percent}` }), percent);
  });
}

/**
 * Run `work(signal)` for the newest input only: a call aborts the one before it, which ends silently.
 * Errors are shown to the user, and `result` becomes empty: what it has would be taken for the result of this input.
 */
export function latest(work, delay = 0, result = null) {
  let controller = null;
  let timer = 0;
  let hasFailed = false;
  return () => {
    controller?.abort();
    clearTimeout(timer);
    const own = (controller = new AbortController());
    timer = setTimeout(async () => {
      try {
        await work(own.signal);
        if (own.signal.aborted) return;
        if (hasFailed) say("");
        hasFailed = false;
      } catch (error) {
        if (own.signal.aborted) return;
        hasFailed = true;
        result?.replaceChildren();
        say(error.message, true);
      }
    }, delay);
  };
}
