// Large texts are in the page as gzip in base64. They are unpacked when they are shown, and only become text nodes.

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
    else showSource(pre, text, details.dataset);
  } catch (error) {
    pre.textContent = "This browser cannot unpack the text: " + error;
  }
}

// The findings of a file by line, of LINE:ANCHOR LINE:ANCHOR.
function marksOf(marks) {
  return new Map((marks || "").split(" ").filter(Boolean).map((mark) => {
    const colon = mark.indexOf(":");
    return [Number(mark.slice(0, colon)), mark.slice(colon + 1)];
  }));
}

function makeRow(line, text, anchor) {
  const row = document.createElement("span");
  row.className = anchor ? "row found" : "row";
  const number = document.createElement(anchor ? "a" : "span");
  number.className = "number";
  number.textContent = String(line);
  if (anchor) {
    number.href = "#" + anchor;
    number.setAttribute("aria-label", "line " + line + ", to the finding");
  }
  row.append(number, text);
  return row;
}

function showSource(pre, text, data) {
  const marks = marksOf(data.marks);
  pre.replaceChildren(...text.split("\n").map((line, index) => {
    const row = makeRow(index + 1, line, marks.get(index + 1));
    row.dataset.line = String(index + 1);
    row.lines = [data.file + ":" + (index + 1)];
    return row;
  }));
}

function openAround(element) {
  for (let each = element; each; each = each.parentElement) if (each.tagName === "DETAILS") each.open = true;
}

async function goToLine(name, place) {
  const colon = place.lastIndexOf(":");
  const file = place.slice(0, colon);
  const line = Number(place.slice(colon + 1));
  const articles = [...document.querySelectorAll("article[data-name]")];
  const all = articles.filter((each) => each.dataset.name === name)
    .flatMap((each) => [...each.querySelectorAll("details[data-file]")]);
  const details = all.find((each) => each.dataset.file === file)
    || all.find((each) => ("/" + each.dataset.file).endsWith("/" + file));
  if (!details) return;
  details.open = true;
  await fill(details);
  for (const each of document.querySelectorAll("details[data-file] .row.here")) each.classList.remove("here");
  const row = rowOf(details, line);
  light(details.closest("article"), new Set([details.dataset.file + ":" + line]));
  if (row) {
    row.classList.add("here");
    row.scrollIntoView({ block: "center" });
  }
}

// A link to a graph or to generated code shows it beside the source, in the last pane. A stage of a kernel is shown
// beside the kernel.
async function goToDocument(link) {
  const stages = link.closest("details").querySelector(".stages");
  openAround(stages);
  await openStages(stages);
  const panes = [...stages.querySelectorAll(".pane")];
  const { documents, places } = panes[0].stages;
  const placeOf = (block) => documents.findIndex((each) => each.block === block);
  const place = placeOf(link.dataset.document);
  const form = link.dataset.form || "readable";
  const pane = panes.find((each) => each.querySelector("select").value === String(place)) || panes[panes.length - 1];
  await choose(pane, place, form);
  const beside = panes.findLast((each) => each !== pane);
  if (link.dataset.beside && beside) await choose(beside, placeOf(link.dataset.beside), form);
  const line = places[link.dataset.kernel || link.id];
  const at = link.dataset.beside ? beside : pane;
  const row = line && at && rowOf(at, line);
  if (row) {
    select(row.closest(".pane"), row);
    scrollTo(row);
  }
  stages.scrollIntoView({ block: "start" });
  pane.querySelector("pre:not([hidden]), .drawing:not([hidden])").focus({ preventScroll: true });
}

function follow() {
  let hash = location.hash.slice(1);
  try { hash = decodeURIComponent(hash); } catch { return; }
  const line = /^(r\d+-)?line=(.*)$/s.exec(hash);
  if (line) return goToLine(line[1] || "", line[2]);
  const element = hash && document.getElementById(hash);
  if (!element) return;
  openAround(element);
  if (element.dataset.document) return goToDocument(element);
  (element.closest("details") || element).scrollIntoView({ block: "start" });
}

function filterBy(words) {
  const wanted = words.toLowerCase();
  for (const each of document.querySelectorAll("main section > details, main tbody tr")) {
    each.hidden = wanted !== "" && !each.textContent.toLowerCase().includes(wanted);
  }
}

for (const details of document.querySelectorAll("details[data-block]")) {
  details.addEventListener("toggle", () => { if (details.open) fill(details); });
}
for (const details of document.querySelectorAll("details[data-flame]")) {
  details.addEventListener("toggle", () => { if (details.open) openFlame(details); });
}
for (const details of document.querySelectorAll("details[data-stages]")) {
  details.addEventListener("toggle", () => { if (details.open) openStages(details); });
}
document.addEventListener("click", (event) => {
  const row = event.target.closest("details[data-file] .row");
  if (row) light(row.closest("article"), new Set(row.lines));
  const link = event.target.closest("a[data-document]");
  if (link && link.hash === location.hash) goToDocument(link); // the hash does not change, so nothing else follows it
});
const filter = document.getElementById("filter");
filter.closest("label").hidden = false;
filter.addEventListener("input", () => filterBy(filter.value));
document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT"].includes(document.activeElement.tagName);
  if (event.key === "/" && !typing) { event.preventDefault(); filter.focus(); }
  if (event.key === "Escape" && document.activeElement === filter) { filter.value = ""; filterBy(""); filter.blur(); }
});
window.addEventListener("hashchange", follow);
follow();
