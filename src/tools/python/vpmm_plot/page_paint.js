// SPDX-License-Identifier: MIT
// Draws the panels. `view` says which part of `trace` is seen: first and last in ns, low and high on the axis of
// addresses. Each panel keeps the room at its left for the words of its axis.
const LEFT = 118, RIGHT = 12, TOP = 6, BOTTOM = 22;
const FONT = '11px "DejaVu Sans", Verdana, Helvetica, Arial, sans-serif';
let theme = data.themes.light;

function mixed(colours, share) {
  const place = Math.min(Math.max(share, 0), 1) * (colours.length - 1);
  const below = Math.min(Math.floor(place), colours.length - 2);
  const parts = [1, 3, 5].map((at) => {
    const [from, to] = [colours[below], colours[below + 1]].map((colour) => parseInt(colour.slice(at, at + 2), 16));
    return Math.round(from + (to - from) * (place - below));
  });
  return `rgb(${parts.join(",")})`;
}

function panel(id) {
  const canvas = document.getElementById(id);
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = FONT;
  pen.clearRect(0, 0, width, height);
  return {canvas, pen, left: LEFT, right: width - RIGHT, top: TOP, bottom: height - BOTTOM};
}

function line(pen, x0, y0, x1, y1, colour, dash = []) {
  pen.strokeStyle = colour;
  pen.lineWidth = 1;
  pen.setLineDash(dash);
  pen.beginPath();
  pen.moveTo(x0, y0);
  pen.lineTo(x1, y1);
  pen.stroke();
  pen.setLineDash([]);
}

function word(pen, text, x, y, align, colour) {
  pen.fillStyle = colour;
  pen.textAlign = align;
  pen.textBaseline = "middle";
  pen.fillText(text, x, y);
}

function frame(box) {
  line(box.pen, box.left - 0.5, box.top, box.left - 0.5, box.bottom, theme.soft);
  line(box.pen, box.left, box.bottom + 0.5, box.right, box.bottom + 0.5, theme.soft);
}

function timeAxis(box, first, last) {
  const found = timeTicks(first, last, Math.max(3, (box.right - box.left) / 110));
  for (const tick of found.ticks) {
    const x = box.left + (tick - first) / (last - first) * (box.right - box.left);
    line(box.pen, x, box.bottom, x, box.bottom + 4, theme.soft);
    word(box.pen, `${found.text(tick)} ${found.name}`, x, box.bottom + 13, "center", theme.soft);
  }
}

function levelAxis(box, top) {
  const yOf = (level) => box.bottom - level / (top * 1.06) * (box.bottom - box.top);
  for (const tick of byteTicks(0, top, 5)) {
    if (tick) line(box.pen, box.left, yOf(tick), box.right, yOf(tick), theme.grid);
    word(box.pen, tick ? bytesText(tick) : "0", box.left - 8, yOf(tick), "right", theme.soft);
  }
  return yOf;
}

// The points of a curve that differ at this many columns: of each the first, lowest, highest and last level.
function seen(steps, first, last, columns) {
  const points = [[first, levelAt(steps, first)]];
  let place = lastUpTo(steps.when, first) + 1;
  while (place < steps.when.length && steps.when[place] < last) {
    const column = Math.floor((steps.when[place] - first) / (last - first) * columns);
    const edge = first + (column + 1) / columns * (last - first);
    let low = place, high = place, end = place;
    while (end + 1 < steps.when.length && steps.when[end + 1] < Math.min(edge, last)) {
      end++;
      if (steps.level[end] < steps.level[low]) low = end;
      if (steps.level[end] > steps.level[high]) high = end;
    }
    for (const at of [...new Set([place, low, high, end])].sort((a, b) => a - b)) points.push([steps.when[at], steps.level[at]]);
    place = end + 1;
  }
  points.push([last, levelAt(steps, last)]);
  return points;
}

function curve(box, steps, first, last, yOf, colour, options = {}) {
  const points = seen(steps, first, last, box.right - box.left);
  const shift = options.shift || 0;
  const xOf = (ns) => box.left + (ns - shift - (options.first ?? first)) / ((options.last ?? last) - (options.first ?? first)) * (box.right - box.left);
  const pen = box.pen;
  const trail = (isClosed) => {
    pen.beginPath();
    let y = yOf(isClosed ? 0 : points[0][1]);
    pen.moveTo(xOf(points[0][0]), y);
    for (const [ns, level] of points) {
      pen.lineTo(xOf(ns), y);
      y = yOf(level);
      pen.lineTo(xOf(ns), y);
    }
    if (isClosed) pen.lineTo(xOf(points[points.length - 1][0]), yOf(0));
  };
  if (options.fill) {
    pen.globalAlpha = options.fill;
    pen.fillStyle = colour;
    trail(true);
    pen.fill();
    pen.globalAlpha = 1;
  }
  pen.strokeStyle = colour;
  pen.lineWidth = options.width || 1.4;
  pen.setLineDash(options.dash || []);
  trail(false);
  pen.stroke();
  pen.setLineDash([]);
}

function legend(id, entries) {
  const place = document.getElementById(id);
  place.replaceChildren(...entries.map(([colour, text]) => {
    const entry = document.createElement("span");
    const mark = document.createElement("i");
    mark.style.background = colour;
    entry.append(mark, text);
    return entry;
  }));
}

function highest(steps, first, last) {
  let most = levelAt(steps, first);
  for (let place = lastUpTo(steps.when, first) + 1; place < steps.when.length && steps.when[place] <= last; place++)
    most = Math.max(most, steps.level[place]);
  return most;
}

function paintMemory(trace, view) {
  const box = panel("memory");
  const curves = [["held", theme.held, 0.13], ["live", theme.live, 0.28], ["passed", theme.passed, 0], ["pending", theme.pending, 0]];
  const shown = curves.filter(([name]) => trace[name]);
  const most = new Map(shown.map(([name]) => [name, highest(trace[name], view.first, view.last)]));
  const yOf = levelAxis(box, Math.max(1, ...most.values()));
  timeAxis(box, view.first, view.last);
  for (const [name, colour, fill] of shown) curve(box, trace[name], view.first, view.last, yOf, colour, {fill});
  const failed = trace.failed.filter((ns) => ns >= view.first && ns <= view.last);
  for (const ns of failed) {
    const x = box.left + (ns - view.first) / (view.last - view.first) * (box.right - box.left);
    line(box.pen, x, box.top, x, box.top + 8, theme.failed);
  }
  frame(box);
  const entries = shown.map(([name, colour]) =>
    [colour, data.words[name] + (data.tellMost.includes(name) ? `, at most ${bytesText(most.get(name))}` : "")]);
  if (failed.length) entries.push([theme.failed, `${failed.length.toLocaleString("en")}${trace.failed.length < data.failedMost ? "" : " and more"} ${data.words.failed}`]);
  legend("memory-legend", entries);
}

function paintCompare() {
  const box = panel("compare");
  const last = Math.max(...traces.map((trace) => trace.last - trace.first));
  const all = traces.flatMap((trace) => [trace.live, trace.held].filter(Boolean).map((steps) => highest(steps, trace.first, trace.last)));
  const yOf = levelAxis(box, Math.max(1, ...all));
  timeAxis(box, 0, last);
  traces.forEach((trace, number) => {
    const options = {shift: trace.first, first: 0, last};
    const colour = data.compared[number % data.compared.length];
    if (trace.held) curve(box, trace.held, trace.first, trace.last, yOf, colour, {...options, width: 1.8});
    curve(box, trace.live, trace.first, trace.last, yOf, colour, {...options, width: 1, dash: trace.held ? [4, 2] : []});
  });
  frame(box);
  legend("compare-legend", traces.map((trace, number) => [data.compared[number % data.compared.length],
    `${trace.name}: ${bytesText(trace.peak.bytes)} live${trace.heldPeak ? `, ${bytesText(trace.heldPeak.bytes)} held` : ""}`]));
}
