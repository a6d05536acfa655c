"use strict";
(() => {
  const root = document.documentElement, button = document.getElementById("theme"), tip = document.getElementById("tip");
  const themes = ["automatic", "light", "dark"];
  const remembered = () => { try { return localStorage.getItem("triptych-theme"); } catch { return null; } };
  const use = (theme) => {
    if (theme === "automatic") root.removeAttribute("data-theme"); else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
    try { localStorage.setItem("triptych-theme", theme); } catch { /* files have no storage in some browsers */ }
  };
  let theme = new URLSearchParams(location.search).get("theme") || remembered();
  theme = themes.includes(theme) ? theme : "automatic";
  use(theme);
  button.hidden = false;
  button.addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % themes.length]; use(theme); });

  for (const chart of document.querySelectorAll("svg.chart")) {
    const marks = [...chart.querySelectorAll(".hit")].map((node) => {
      const title = node.querySelector("title"), text = title.textContent;
      title.remove();  // the browser would show it a second time
      const middle = (place, size) => Number(node.getAttribute(place)) + Number(node.getAttribute(size)) / 2;
      const circle = node.tagName === "circle";
      return { node, text, x: circle ? Number(node.getAttribute("cx")) : middle("x", "width"), y: circle ? Number(node.getAttribute("cy")) : middle("y", "height") };
    });
    const mode = chart.dataset.hover, cursor = chart.querySelector(".cursor");
    let shown = null;
    const distance = (mark, at) => mode === "x" ? Math.abs(mark.x - at.x) : Math.hypot(mark.x - at.x, mark.y - at.y);
    const find = (event, at) => {
      if (mode === "element") return marks.find((mark) => mark.node === event.target) || null;
      const near = marks.reduce((best, mark) => !best || distance(mark, at) < distance(best, at) ? mark : best, null);
      return near && distance(near, at) < (mode === "x" ? 24 : 60) ? near : null;
    };
    const hide = () => {
      if (shown) shown.node.classList.remove("near");
      if (cursor) cursor.style.visibility = "hidden";
      shown = null;
      tip.hidden = true;
    };
    const show = (mark, event) => {
      if (mark !== shown) {
        hide();
        shown = mark;
        mark.node.classList.add("near");
        tip.textContent = mark.text;
      }
      tip.hidden = false;
      if (cursor) { cursor.setAttribute("x1", mark.x); cursor.setAttribute("x2", mark.x); cursor.style.visibility = "visible"; }
      const box = tip.getBoundingClientRect(), over = event.clientX + 16 + box.width > innerWidth - 8;
      tip.style.left = `${Math.max(8, over ? event.clientX - 16 - box.width : event.clientX + 16)}px`;
      tip.style.top = `${Math.max(8, Math.min(event.clientY - box.height - 10, innerHeight - box.height - 8))}px`;
    };
    chart.addEventListener("pointermove", (event) => {
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(chart.getScreenCTM().inverse());
      const mark = find(event, at);
      if (mark) show(mark, event); else hide();
    });
    chart.addEventListener("pointerleave", hide);
  }
})();
