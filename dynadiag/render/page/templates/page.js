
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
const filter = document.getElementById("filter");
filter.closest("label").hidden = false;
filter.addEventListener("input", () => filterBy(filter.value));
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== filter) { event.preventDefault(); filter.focus(); }
  if (event.key === "Escape" && document.activeElement === filter) { filter.value = ""; filterBy(""); filter.blur(); }
});
window.addEventListener("hashchange", follow);
follow();
