// Step pages inside the book: as high as they need to be, and as light or dark as the book.
"use strict";

function dark() {
  const chosen = document.body.dataset.theme;
  return chosen === "dark" ||
    (chosen !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
}

function fit(frame) {
  const inside = frame.contentDocument && frame.contentDocument.documentElement;
  if (!inside) return; // a page opened from the disk may not look into another
  inside.dataset.theme = dark() ? "dark" : "light";
  if (!frame.classList.contains("whole")) {
    const body = frame.contentDocument.body;
    if (body && body.scrollHeight > 0) frame.style.height = body.scrollHeight + 2 + "px";
  }
}

for (const frame of document.querySelectorAll("iframe.step")) {
  const start = () => {
    fit(frame);
    if (frame.contentDocument && frame.contentDocument.body) {
      new ResizeObserver(() => fit(frame)).observe(frame.contentDocument.body);
    }
  };
  frame.addEventListener("load", start);
  if (frame.contentDocument && frame.contentDocument.readyState === "complete") start();
}

const refit = () => document.querySelectorAll("iframe.step").forEach(fit);
new MutationObserver(refit).observe(document.body, {attributeFilter: ["data-theme"]});
window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", refit);
