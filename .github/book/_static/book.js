"use strict";
// An experiment takes the place of the picture before it; without this script the picture stays.
for (const frame of document.querySelectorAll("iframe.try")) {
  frame.loading = "lazy";
  frame.src = frame.dataset.src;
}

// What the theme and the notebooks leave unsaid to a screen reader, and on paper.
for (const caption of document.querySelectorAll(".caption[role=heading]")) caption.ariaLevel = 2;
for (const summary of document.querySelectorAll("summary[aria-label]")) summary.removeAttribute("aria-label");
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => one.open = true));
addEventListener("load", () => setTimeout(() => {  // a search hit: where the word stands
  const found = document.querySelector("span.highlighted");
  if (found) found.scrollIntoView({ block: "center" });
}));

// Step pages inside the book: as high as they need to be, and as light or dark as the book.

const device = matchMedia("(prefers-color-scheme: dark)");

function fit(frame) {
  const chosen = document.body.dataset.theme, inside = frame.contentDocument?.body;
  if (!inside) return;  // a page opened from the disk may not look into another
  inside.parentNode.dataset.theme = /dark|light/.test(chosen) ? chosen : device.matches ? "dark" : "light";
  if (inside.scrollHeight) frame.style.height = inside.scrollHeight + 2 + "px";
  return inside;
}

for (const frame of document.querySelectorAll("iframe.step")) {
  const start = () => {
    const inside = fit(frame);
    if (inside) new frame.contentWindow.ResizeObserver(() => requestAnimationFrame(() => fit(frame))).observe(inside);
  };
  frame.addEventListener("load", start);
  if (frame.contentDocument?.readyState === "complete") start();
}

const refit = () => document.querySelectorAll("iframe.step").forEach(fit);
new MutationObserver(refit).observe(document.body, {attributeFilter: ["data-theme"]});
device.addEventListener("change", refit);

// What is wider than its column scrolls; where it is cut, its edge fades and a word stands below.
const WIDE = "article pre, .table-wrapper, a.wide, .math-wrapper, math[display=block]";
// In the next frame, for the word changes the sizes that are being observed.
const cue = new ResizeObserver(entries => requestAnimationFrame(() => entries.forEach(({target}) => {
  const box = target.closest(WIDE), cut = box.scrollWidth > box.clientWidth + 1;
  if (cut === box.classList.contains("cut")) return;
  box.classList.toggle("cut", cut);
  if (!cut) return box.nextElementSibling.remove();
  box.tabIndex = 0;
  box.insertAdjacentHTML("afterend", '<div class="more">scroll \u2194</div>');
})));
for (const box of document.querySelectorAll(WIDE)) {
  box.addEventListener("scroll", () => box.classList.toggle("end",
    box.scrollLeft + box.clientWidth > box.scrollWidth - 4));
  cue.observe(box);
  // What is inside may grow later, when a font comes, and the box not.
  if (box.firstElementChild) cue.observe(box.firstElementChild);
}
