// SPDX-License-Identifier: MIT
// What is seen, and what pointer and keys do to it.
const element = (id) => document.getElementById(id);
let trace = traces[0];
let view = whole(trace);
let isWaiting = false;

function whole(of) {
  return {first: of.first, last: of.last, low: 0, high: 1};
}

function facts() {
  const found = [["live peak", bytesText(trace.peak.bytes), trace.peak.bytes, "live-peak"],
    ["at", timeText(trace.peak.when), trace.peak.when, "peak-time"]];
  if (trace.heldPeak) {
    found.push(["held peak", bytesText(trace.heldPeak.bytes), trace.heldPeak.bytes, "held-peak"]);
    if (trace.peak.bytes) found.push(["held / live", (trace.heldPeak.bytes / trace.peak.bytes).toFixed(2), trace.heldPeak.bytes / trace.peak.bytes, "ratio"]);
  }
  const drawn = trace.blocks.start.length;
  const all = trace.allBlocks === drawn ? "blocks" : `of ${trace.allBlocks.toLocaleString("en")} blocks: the largest`;
  found.push([all, drawn.toLocaleString("en"), drawn, "blocks"]);
  if (trace.failed.length) found.push(["refused", trace.failed.length.toLocaleString("en"), trace.failed.length, "refused"]);
  if (trace.dropped) found.push(["entries dropped", trace.dropped.toLocaleString("en"), trace.dropped, "dropped"]);
  element("facts").replaceChildren(...found.map(([name, text, value, id]) => {
    const pair = document.createElement("div"), term = document.createElement("dt"), fact = document.createElement("dd");
    term.textContent = name;
    fact.textContent = text;
    fact.id = id;
    fact.dataset.value = value;
    pair.append(term, fact);
    return pair;
  }));
}

function paint() {
  isWaiting = false;
  if (traces.length > 1) paintCompare();
  paintMemory(trace, view);
  const hasBlocks = trace.allBlocks > 0 || trace.mapped.start.length > 0;
  element("map-part").hidden = element("sizes-part").hidden = !hasBlocks;
  if (!hasBlocks) return;
  paintMap(trace, view, element("colour").value);
  paintSizes(trace, view);
}

function soon() {
  if (isWaiting) return;
  isWaiting = true;
  requestAnimationFrame(paint);
}

function dress(isDark) {
  theme = isDark ? data.themes.dark : data.themes.light;
  for (const name of ["ground", "ink", "soft", "live", "failed"]) document.documentElement.style.setProperty(`--${name}`, theme[name]);
  document.documentElement.style.colorScheme = isDark ? "dark" : "light";
  soon();
}

// [from, to] made `factor` times as long about `middle`, within [least, most].
function scaled(from, to, middle, factor, least, most, shortest) {
  const length = Math.min(Math.max((to - from) * factor, shortest), most - least);
  const share = (middle - from) / (to - from);
  const begin = Math.min(Math.max(middle - share * length, least), most - length);
  return [begin, begin + length];
}

function zoom(factor, middle = (view.first + view.last) / 2) {
  [view.first, view.last] = scaled(view.first, view.last, middle, factor, trace.first, trace.last, 100);
  soon();
}

function zoomAddresses(factor, middle) {
  [view.low, view.high] = scaled(view.low, view.high, middle, factor, 0, 1, 1e-7);
  soon();
}

function move(time, addresses) {
  [view.first, view.last] = scaled(view.first + time, view.last + time, view.first + time, 1, trace.first, trace.last, 0);
  [view.low, view.high] = scaled(view.low + addresses, view.high + addresses, view.low + addresses, 1, 0, 1, 0);
  soon();
}

function toPeak() {
  const length = (trace.last - trace.first) / 50;
  view = whole(trace);
  [view.first, view.last] = scaled(trace.peak.when - length / 2, trace.peak.when + length / 2, trace.peak.when, 1, trace.first, trace.last, 100);
  soon();
}

// Where in the data a pointer is.
function pointed(canvas, event) {
  const box = canvas.getBoundingClientRect();
  const width = box.width - LEFT - RIGHT, height = box.height - TOP - BOTTOM;
  const x = (event.clientX - box.left - LEFT) / width, y = (box.bottom - BOTTOM - event.clientY) / height;
  return {isInside: x >= 0 && x <= 1 && y >= 0 && y <= 1, ns: view.first + x * (view.last - view.first),
    place: view.low + y * (view.high - view.low), perPixel: {ns: 1.5 * (view.last - view.first) / width, place: 1.5 * (view.high - view.low) / height}};
}

function memoryText(ns) {
  const parts = [["live", trace.live], ["passed", trace.passed], ["held", trace.held], ["pending", trace.pending]];
  return [timeText(ns, 7), ...parts.filter(([, steps]) => steps).map(([name, steps]) => `${data.words[name]}: ${bytesText(levelAt(steps, ns))}`)].join("\n");
}

function tell(canvas, event) {
  const tip = element("tip"), at = pointed(canvas, event);
  const text = !at.isInside ? null : canvas.id === "map" ? mapText(trace, view, at.ns, at.place, at.perPixel) : memoryText(at.ns);
  tip.hidden = text === null;
  if (text === null) return;
  tip.textContent = text;
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)}px`;
}

function listen(canvas) {
  let from = null;
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    const at = pointed(canvas, event), factor = Math.exp((event.deltaY || event.deltaX) * 0.0015);
    if (event.shiftKey && canvas.id === "map") zoomAddresses(factor, at.place); else zoom(factor, at.ns);
  }, {passive: false});
  canvas.addEventListener("pointerdown", (event) => {
    from = event;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointerup", () => { from = null; });
  canvas.addEventListener("pointermove", (event) => {
    if (from) {
      const before = pointed(canvas, from), now = pointed(canvas, event);
      move(before.ns - now.ns, canvas.id === "map" ? before.place - now.place : 0);
      from = event;
    }
    tell(canvas, event);
  });
  canvas.addEventListener("pointerleave", () => { element("tip").hidden = true; });
  canvas.addEventListener("dblclick", () => { view = whole(trace); soon(); });
}

const KEYS = {"+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => { view = whole(trace); soon(); }, p: toPeak,
  ArrowLeft: () => move((view.first - view.last) / 8, 0), ArrowRight: () => move((view.last - view.first) / 8, 0),
  ArrowUp: () => move(0, (view.high - view.low) / 8), ArrowDown: () => move(0, (view.low - view.high) / 8)};

function begin() {
  traces.forEach((one, number) => element("trace").add(new Option(one.name, number)));
  element("choose").hidden = element("compare-part").hidden = traces.length < 2;
  element("colour").value = data.colourBy;
  element("trace").addEventListener("change", (event) => { trace = traces[event.target.value]; view = whole(trace); facts(); soon(); });
  element("colour").addEventListener("change", soon);
  for (const [id, action] of [["nearer", KEYS["+"]], ["farther", KEYS["-"]], ["all", KEYS["0"]], ["peak", toPeak],
    ["ground", () => dress(theme === data.themes.light)]]) element(id).addEventListener("click", action);
  for (const id of ["memory", "map"]) listen(element(id));
  window.addEventListener("keydown", (event) => {
    if (event.target.tagName === "SELECT" || event.ctrlKey || event.metaKey || !(event.key in KEYS)) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  window.addEventListener("resize", soon);
  facts();
  dress(data.isDark || window.matchMedia("(prefers-color-scheme: dark)").matches);
  paint();
  document.body.dataset.state = "drawn";
}

window.addEventListener("error", (event) => {
  element("trouble").hidden = false;
  element("trouble").textContent = `This page went wrong: ${event.message}`;
});
begin();
