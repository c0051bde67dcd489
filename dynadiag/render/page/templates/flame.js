// The flame graph: a box for each timed section, above the sections in it. A chosen box is as wide as the graph.

const LEVEL = 20; // pixels
const NARROWEST = 0.001; // of the width: narrower boxes are drawn once they are zoomed to

async function openFlame(details) {
  if (details.flame) return;
  const host = details.querySelector(".flame");
  try {
    details.flame = JSON.parse(await unpack(details.dataset.flame));
  } catch (error) {
    host.textContent = "This browser cannot unpack the times: " + error;
    return;
  }
  const left = details.flame.left_out;
  if (left) details.querySelector(".more").textContent = left + " shorter sections are left out.";
  host.addEventListener("click", (event) => chooseBox(details, event.target.closest("svg.slice")));
  host.addEventListener("focusin", (event) => tellBox(details, event.target.closest("svg.slice")));
  host.addEventListener("keydown", (event) => walkFlame(details, event));
  drawFlame(details, 0, details.flame.seconds, null);
}

function element(name, attributes) {
  const made = document.createElementNS(document.querySelector(".flame svg").namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function drawFlame(details, from, seconds, focused) {
  const shown = details.flame.boxes.filter(([, start, length]) =>
    start < from + seconds && start + length > from && length >= seconds * NARROWEST);
  const levels = shown.reduce((most, [level]) => Math.max(most, level + 1), 1);
  const svg = element("svg", { width: "100%", height: levels * LEVEL, role: "group", "aria-label": "flame graph" });
  svg.append(...shown.map((box) => makeSlice(box, from, seconds)));
  details.querySelector(".flame").replaceChildren(svg);
  const first = [...svg.children].find((each) => each.box === focused) || svg.firstElementChild;
  if (!first) return;
  first.setAttribute("tabindex", "0");
  if (focused) first.focus({ preventScroll: true });
}

function makeSlice(box, from, seconds) {
  const [level, start, length, , name, phase] = box;
  const left = Math.max(start, from);
  const width = (100 * (Math.min(start + length, from + seconds) - left)) / seconds;
  const place = { x: (100 * (left - from)) / seconds + "%", y: level * LEVEL, width: width + "%", height: LEVEL - 1 };
  const slice = element("svg", { ...place, class: "slice", role: "button", tabindex: "-1", "aria-label": words(box) });
  slice.box = box;
  const rect = element("rect", { width: "100%", height: "100%", class: "phase-" + phase.replaceAll(/\W/g, "-") });
  const label = element("text", { x: 4, y: 13 });
  label.textContent = name;
  const title = element("title", {});
  title.textContent = words(box);
  slice.append(title, rect, label);
  return slice;
}

function words([, , length, own, name, phase, compile]) {
  const time = (seconds) => (seconds < 1 ? (seconds * 1000).toFixed(1) + " ms" : seconds.toFixed(2) + " s");
  return name + ": " + time(length) + ", of that its own " + time(own) + "; " + phase + (compile ? "; compile " + compile : "");
}

function tellBox(details, slice) {
  if (slice) details.querySelector(".status").textContent = words(slice.box);
}

// Zoom to a box; a box that is as wide as the graph zooms out again.
function chooseBox(details, slice) {
  if (!slice) return;
  const [, start, length] = slice.box;
  const isWide = slice.getAttribute("width") === "100%";
  if (isWide) drawFlame(details, 0, details.flame.seconds, slice.box);
  else drawFlame(details, start, length, slice.box);
}

// Left and right go to the next box of a level, up and down to a box of another level at the same time.
function walkFlame(details, event) {
  const slice = event.target.closest("svg.slice");
  if (!slice) return;
  const [level, start, length] = slice.box;
  const all = [...slice.parentElement.children];
  const at = (other) => all.filter((each) => each.box[0] === other);
  const around = (each) => each.box[1] < start + length && each.box[1] + each.box[2] > start;
  const row = at(level);
  const next = {
    ArrowLeft: () => row[row.indexOf(slice) - 1],
    ArrowRight: () => row[row.indexOf(slice) + 1],
    ArrowUp: () => at(level - 1).find(around),
    ArrowDown: () => at(level + 1).find(around),
  }[event.key];
  if (next) moveTo(slice, next());
  else if (event.key === "Enter" || event.key === " ") chooseBox(details, slice);
  else if (event.key === "Escape") drawFlame(details, 0, details.flame.seconds, slice.box);
  else return;
  event.preventDefault();
}

function moveTo(slice, next) {
  if (!next) return;
  slice.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus({ preventScroll: true });
}
