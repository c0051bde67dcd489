
"use strict";
// Large texts stand in the page as gzip in base64. They are unpacked when looked at, and only ever become text nodes.

async function unpack(name) {
  const block = document.getElementById("block-" + name);
  if (!block) return null;
  const bytes = Uint8Array.from(atob(block.textContent.trim()), (char) => char.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

async function fill(details) {
  const pre = details.querySelector("pre");
  if (details.dataset.filled) return;
  details.dataset.filled = "yes";
  try {
    const text = await unpack(details.dataset.block);
    if (text === null) pre.textContent = "This text is not in the page.";
    else if (details.dataset.file !== undefined) showSource(pre, text, details.dataset.marks || "");
    else pre.textContent = text;
  } catch (error) {
    pre.textContent = "This browser cannot unpack the text: " + error;
  }
}

function showSource(pre, text, marks) {
  const found = new Map();
  for (const mark of marks.split(" ").filter(Boolean)) {
    const colon = mark.indexOf(":");
    found.set(Number(mark.slice(0, colon)), mark.slice(colon + 1));
  }
  const rows = document.createDocumentFragment();
  text.split("\n").forEach((line, index) => {
    const row = document.createElement("span");
    row.className = found.has(index + 1) ? "row found" : "row";
    row.dataset.line = String(index + 1);
    const number = document.createElement(found.has(index + 1) ? "a" : "span");
    number.className = "number";
    number.textContent = String(index + 1);
    if (found.has(index + 1)) {
      number.href = "#" + found.get(index + 1);
      number.setAttribute("aria-label", "line " + (index + 1) + ", to the finding");
    }
    row.append(number, line);
    rows.append(row);
  });
  pre.append(rows);
}

// A drawing is SVG. It is parsed as a document of its own, and the page's policy runs no script of it.
async function draw(details) {
  const host = details.querySelector(".drawing");
  const name = details.dataset.drawing;
  const every = details.querySelector("input[type=checkbox]");
  try {
    const text = await unpack(every.checked ? name + "-all" : name);
    if (text === null) { host.textContent = "This graph has too many boxes for a drawing."; return; }
    const svg = document.adoptNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement);
    svg.dataset.width = svg.getAttribute("width");
    for (const box of svg.querySelectorAll("g.box")) {
      box.setAttribute("tabindex", "0");
      box.setAttribute("role", "button");
      box.setAttribute("aria-label", [...box.querySelectorAll("text")].map((each) => each.textContent).join(", "));
    }
    host.replaceChildren(svg);
    zoom(details, 0);
    find(details);
  } catch (error) {
    host.textContent = "This browser cannot unpack the drawing: " + error;
  }
}

function zoom(details, factor) {
  const host = details.querySelector(".drawing");
  const svg = host.querySelector("svg");
  if (!svg) return;
  const whole = Number(svg.dataset.width);
  const now = factor ? Number(svg.getAttribute("width")) * factor : Math.min(whole, host.clientWidth - 4);
  svg.setAttribute("width", String(Math.round(Math.max(whole / 20, Math.min(whole * 4, now)))));
  svg.removeAttribute("height");
}

function find(details) {
  const wanted = details.querySelector("input[type=search]").value.toLowerCase();
  let first = null;
  for (const box of details.querySelectorAll("g.box")) {
    const here = !wanted || box.textContent.toLowerCase().includes(wanted);
    box.classList.toggle("faded", !here);
    if (wanted && here && !first) first = box;
  }
  if (first) first.scrollIntoView({ block: "nearest", inline: "nearest" });
}

// Light up the boxes and source lines of these lines, each as FILE:LINE.
function light(lines) {
  for (const box of document.querySelectorAll("g.box")) {
    box.classList.toggle("lit", (box.dataset.lines || "").split("\n").some((line) => lines.has(line)));
  }
  for (const row of document.querySelectorAll(".row")) {
    row.classList.toggle("lit", lines.has(row.closest("details").dataset.file + ":" + row.dataset.line));
  }
}

function chooseBox(box) {
  const lines = (box.dataset.lines || "").split("\n").filter(Boolean);
  light(new Set(lines));
  box.classList.add("lit");
  const place = box.closest("details").querySelector(".place");
  place.replaceChildren(lines.length ? "" : "no source line");
  for (const line of lines) {
    const link = document.createElement("a");
    link.href = "#line=" + encodeURIComponent(line);
    link.textContent = line;
    place.append(link, " ");
  }
}

function openAround(element) {
  for (let each = element; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
}

async function goToLine(place) {
  const colon = place.lastIndexOf(":");
  const file = place.slice(0, colon);
  const line = place.slice(colon + 1);
  const all = [...document.querySelectorAll("details[data-file]")];
  const details = all.find((each) => each.dataset.file === file)
    || all.find((each) => ("/" + each.dataset.file).endsWith("/" + file));
  if (!details) return;
  details.open = true;
  await fill(details);
  for (const each of document.querySelectorAll(".row.here")) each.classList.remove("here");
  const row = details.querySelector('.row[data-line="' + Number(line) + '"]');
  light(new Set([details.dataset.file + ":" + Number(line)]));
  if (row) {
    row.classList.add("here");
    row.scrollIntoView({ block: "center" });
  }
}

function follow() {
  let hash = location.hash.slice(1);
  try { hash = decodeURIComponent(hash); } catch { return; }
  if (hash.startsWith("line=")) return goToLine(hash.slice(5));
  const element = hash && document.getElementById(hash);
  if (!element) return;
  openAround(element);
  (element.closest("details") || element).scrollIntoView({ block: "start" });
}

function filterBy(words) {
  const wanted = words.toLowerCase();
  for (const each of document.querySelectorAll("main section > details, tbody tr")) {
    each.hidden = wanted !== "" && !each.textContent.toLowerCase().includes(wanted);
  }
}

for (const details of document.querySelectorAll("details[data-block]")) {
  details.addEventListener("toggle", () => { if (details.open) fill(details); });
}
for (const details of document.querySelectorAll("details[data-drawing]")) {
  details.addEventListener("toggle", () => { if (details.open && !details.querySelector("svg")) draw(details); });
  details.addEventListener("input", (event) => event.target.type === "checkbox" ? draw(details) : find(details));
  details.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    const box = event.target.closest("g.box");
    if (button) zoom(details, Number(button.dataset.zoom));
    else if (box) chooseBox(box);
  });
  details.addEventListener("keydown", (event) => {
    const box = event.target.closest("g.box");
    const factor = { "+": 1.25, "-": 0.8, "0": 0 }[event.key];
    if (event.target.closest("input")) return;
    if (box && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); chooseBox(box); }
    else if (factor !== undefined && event.target.closest(".drawing")) zoom(details, factor);
  });
}
document.addEventListener("click", (event) => {
  const row = event.target.closest(".row[data-line]");
  if (row) light(new Set([row.closest("details").dataset.file + ":" + row.dataset.line]));
});
const filter = document.getElementById("filter");
filter.closest("label").hidden = false;
filter.addEventListener("input", () => filterBy(filter.value));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement.tagName !== "INPUT") { event.preventDefault(); filter.focus(); }
  if (event.key === "Escape" && document.activeElement === filter) { filter.value = ""; filterBy(""); filter.blur(); }
});
window.addEventListener("hashchange", follow);
follow();
