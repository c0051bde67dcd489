"use strict";
// The stages of a compile side by side. Each line and box has the source lines that it comes from, as FILE:LINE. If it
// is chosen, everything from the same source lines is highlighted.

const FORMS = {
  source: { printed: "source" },
  module: { printed: "code" },
  stage: { printed: "code" },
  graph: { readable: "text", printed: "as torch printed it", drawing: "drawn", "drawing-all": "drawn, every node" },
};
const MAX_ROWS = 50000; // lines of a text that are elements of their own

function openStages(details) {
  details.shown ||= buildPanes(details);
  return details.shown;
}

async function buildPanes(details) {
  const host = details.querySelector(".panes");
  try {
    const stages = JSON.parse(await unpack(details.dataset.stages));
    stages.linesOf = (numbers) => numbers.map((number) => stages.keys[number]);
    const hint = document.createElement("p");
    hint.className = "status";
    hint.setAttribute("role", "status");
    hint.textContent = "Click a line or a box, or go to a line with the arrow keys: everything from the same source line"
      + " is highlighted in every pane. Solid: torch says so. Dashed: inferred from operators and names.";
    host.before(hint);
    host.stages = stages;
    await Promise.all(stages.panes.map((place) => addPane(host, place)));
  } catch (error) {
    host.textContent = "This browser cannot unpack the texts: " + error;
  }
}

async function addPane(host, place) {
  const pane = document.getElementById("pane").content.firstElementChild.cloneNode(true);
  host.append(pane);
  pane.stages = host.stages;
  const [which, form] = pane.querySelectorAll("select");
  host.stages.documents.forEach((each, number) => which.append(new Option(each.title, String(number))));
  which.addEventListener("change", () => choose(pane, Number(which.value)));
  form.addEventListener("change", () => show(pane));
  pane.addEventListener("input", (event) => { if (event.target.type === "search") find(pane); });
  pane.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    const part = event.target.closest("g.box, .row");
    if (button) zoom(pane, Number(button.dataset.zoom));
    else if (part) select(pane, part);
  });
  pane.addEventListener("keydown", (event) => walk(pane, event));
  await choose(pane, place);
  const first = host.stages.documents[place].kind === "source" && rowOf(pane, host.stages.line);
  if (first) scrollTo(first);
}

function rowOf(pane, line) {
  return pane.querySelector('.row[data-line="' + line + '"]');
}

function choose(pane, place, form) {
  const [which, forms] = pane.querySelectorAll("select");
  const chosen = pane.stages.documents[place];
  which.value = String(place);
  const known = Object.entries(FORMS[chosen.kind]).filter(([name]) => chosen.drawn || !name.startsWith("drawing"));
  const wanted = form || forms.value;
  forms.replaceChildren(...known.map(([name, words]) => new Option(words, name)));
  forms.value = known.some(([name]) => name === wanted) ? wanted : known[0][0];
  forms.hidden = known.length < 2;
  return show(pane);
}

async function show(pane) {
  const [which, form] = pane.querySelectorAll("select");
  const chosen = pane.stages.documents[Number(which.value)];
  const drawn = form.value.startsWith("drawing");
  const pre = pane.querySelector("pre");
  const host = pane.querySelector(".drawing");
  for (const each of [pre, host]) each.setAttribute("aria-label", chosen.title);
  pane.setAttribute("aria-label", chosen.title);
  pre.hidden = drawn;
  host.hidden = pane.querySelector(".zoom").hidden = !drawn;
  const text = await unpack(chosen.block + (form.value === "printed" ? "" : "-" + form.value));
  if (drawn) draw(pane, text);
  else if (text === null) pre.textContent = "This text is not in the page.";
  else showRows(pane, chosen, form.value, text);
  find(pane);
  light(pane.closest("article"), pane.closest("article").lit || new Set(), pane);
}

function showRows(pane, chosen, form, text) {
  const pre = pane.querySelector("pre");
  const lines = text.split("\n");
  if (lines.length > MAX_ROWS) { pre.textContent = text; return; }
  const file = chosen.kind === "source" ? document.querySelector('[data-block="' + chosen.block + '"]').dataset : null;
  const links = pane.stages.links[chosen.block] || { lines: [], inferred: [], context: [] };
  const sources = new Map(links.lines.map(([line, ...numbers]) => [line, pane.stages.linesOf(numbers)]));
  const [inferred, context] = [new Set(links.inferred), new Set(links.context)];
  const known = new Set(pane.stages.keys);
  const marks = marksOf(file ? file.marks : "");
  pre.replaceChildren(...lines.map((line, index) => {
    const [number, margin, words] = form === "readable" ? splitReadable(line) : [index + 1, "", line];
    const row = makeRow(number, words, marks.get(number));
    row.lines = file ? [file.file + ":" + number] : sources.get(number) || [];
    row.dataset.line = String(number);
    row.classList.toggle("linked", row.lines.some((each) => known.has(each)));
    row.classList.toggle("inferred", inferred.has(number));
    row.classList.toggle("context", context.has(number));
    if (margin) row.append(Object.assign(document.createElement("span"), { className: "margin", textContent: margin }));
    return row;
  }));
}

function splitReadable(line) {
  const [number, margin, ...rest] = line.split("\t");
  return [Number(number), margin, rest.join("\t")];
}

// A line or box is chosen: everything from its source lines is highlighted, and the other panes scroll to it.
function select(pane, part) {
  const lines = part.lines || (part.dataset.lines || "").split("\n").filter(Boolean);
  for (const each of pane.parentElement.querySelectorAll(".here")) each.classList.remove("here");
  part.classList.add("here");
  light(pane.closest("article"), new Set(lines), null, pane);
  const status = pane.closest(".stages").querySelector(".status");
  status.replaceChildren(lines.length ? "Comes from " : "No source line is known for this.");
  lines.forEach((line, index) => {
    const link = document.createElement("a");
    link.href = "#" + pane.closest("article").dataset.name + "line=" + encodeURIComponent(line);
    link.textContent = line;
    status.append(index ? ", " : "", link);
  });
}

// Highlight what comes from these source lines in an article. In `only`, or in all but `chosen`, scroll to the first.
function light(article, lines, only, chosen) {
  article.lit = lines;
  for (const part of (only || article).querySelectorAll("g.box, .row")) {
    const own = part.lines || (part.dataset.lines || "").split("\n");
    part.classList.toggle("lit", own.some((line) => lines.has(line)));
  }
  for (const pane of only ? [only] : article.querySelectorAll(".pane")) {
    const first = pane.querySelector(".row.lit:not(.context), g.box.lit") || pane.querySelector(".row.lit");
    if (first && pane !== chosen) scrollTo(first);
  }
}

// Scroll inside a pane only, not the page.
function scrollTo(part) {
  const host = part.closest("pre, .drawing");
  const [inner, outer] = [part.getBoundingClientRect(), host.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) host.scrollTop += inner.top - outer.top - outer.height / 3;
  if (part.localName === "g") host.scrollLeft += inner.left - outer.left - outer.width / 3;
}

function walk(pane, event) {
  if (event.target.closest("input, select")) return;
  const box = event.target.closest("g.box");
  const factor = { "+": 1.25, "-": 0.8, "0": 0 }[event.key];
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (box && (event.key === "Enter" || event.key === " ")) select(pane, box);
  else if (factor !== undefined && event.target.closest(".drawing")) zoom(pane, factor);
  else if (by && event.target.closest("pre")) {
    const rows = [...pane.querySelectorAll(".row")];
    const next = rows[rows.findIndex((row) => row.classList.contains("here")) + by] || (by > 0 ? rows[0] : null);
    if (!next) return;
    select(pane, next);
    scrollTo(next);
  } else return;
  event.preventDefault();
}

// A drawing is SVG. It is parsed as a document of its own, and the page's policy runs no script of it.
function draw(pane, text) {
  const host = pane.querySelector(".drawing");
  if (text === null) { host.textContent = "This graph has too many boxes for a drawing."; return; }
  const svg = document.adoptNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement);
  svg.dataset.width = svg.getAttribute("width");
  svg.setAttribute("role", "group");
  for (const box of svg.querySelectorAll("g.box")) {
    box.setAttribute("tabindex", "0");
    box.setAttribute("role", "button");
    box.setAttribute("aria-label", [...box.querySelectorAll("text")].map((each) => each.textContent).join(", "));
  }
  host.replaceChildren(svg);
  zoom(pane, 0);
}

function zoom(pane, factor) {
  const host = pane.querySelector(".drawing");
  const svg = host.querySelector("svg");
  if (!svg) return;
  const whole = Number(svg.dataset.width);
  const now = factor ? Number(svg.getAttribute("width")) * factor : Math.min(whole, host.clientWidth - 4);
  svg.setAttribute("width", String(Math.round(Math.max(whole / 20, Math.min(whole * 4, now)))));
  svg.removeAttribute("height");
}

function find(pane) {
  const wanted = pane.querySelector("input[type=search]").value.toLowerCase();
  let first = null;
  for (const part of pane.querySelectorAll("g.box, .row")) {
    const here = !wanted || part.textContent.toLowerCase().includes(wanted);
    part.classList.toggle("faded", !here);
    if (wanted && here && !first) first = part;
  }
  if (first) scrollTo(first);
}
