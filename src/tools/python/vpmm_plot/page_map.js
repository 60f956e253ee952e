// SPDX-License-Identifier: MIT
// The map of addresses over time, what lies under the pointer there, and the sizes.

// For each block the colour of it, and the legend that tells them.
function blockColours(trace, by) {
  const blocks = trace.blocks;
  if (by === "size") {
    const [low, high] = trace.sizeRange;
    const steps = Array.from({length: 33}, (_, step) => mixed(theme.sizes, step / 32));
    const ends = theme.sizes.map((colour, place) => [colour, bytesText(2 ** Math.round(low + place / (theme.sizes.length - 1) * (high - low)))]);
    ends[0][1] = `live: ${ends[0][1]} or less`;
    ends[ends.length - 1][1] += " or more";
    return {of: (i) => steps[Math.round(Math.min(Math.max((Math.log2(blocks.bytes[i]) - low) / (high - low), 0), 1) * 32)],
      entries: ends.filter((_, place) => place % 2 === 0)};
  }
  if (by === "path") {
    const used = [...new Set(blocks.path)].map((path) => trace.paths[path]);
    return {of: (i) => data.paths[trace.paths[blocks.path[i]]],
      entries: Object.entries(data.paths).filter(([name]) => used.includes(name)).map(([name, colour]) => [colour, name])};
  }
  const colourOf = (place) => data.streams[place] || data.others;
  const entries = trace.streams.slice(0, data.streams.length).map((stream, place) => [colourOf(place), `stream ${stream}`]);
  if (trace.streams.length > entries.length) entries.push([data.others, `${trace.streams.length - entries.length} others`]);
  return {of: (i) => colourOf(blocks.stream[i]), entries};
}

function mapBox(view) {
  const box = panel("map");
  box.xOf = (ns) => box.left + (ns - view.first) / (view.last - view.first) * (box.right - box.left);
  box.yOf = (place) => box.bottom - (place - view.low) / (view.high - view.low) * (box.bottom - box.top);
  return box;
}

function addressAxis(box, trace, view) {
  let lastY = Infinity;
  const tick = (place, text) => {
    const y = box.yOf(place);
    if (y > box.bottom + 0.5 || y < box.top || lastY - y < 14) return;
    lastY = y;
    line(box.pen, box.left - 4, y, box.left, y, theme.soft);
    word(box.pen, text, box.left - 8, y, "right", theme.soft);
  };
  for (const segment of trace.segments) {
    const share = (segment.end - segment.begin) / segment.bytes;
    const from = Math.max(0, (view.low - segment.begin) / share), to = Math.min(segment.bytes, (view.high - segment.begin) / share);
    if (to < from) continue;
    tick(segment.begin, `0x${segment.address.toString(16)}`);
    const room = (to - from) * share / (view.high - view.low) * (box.bottom - box.top);
    for (const offset of byteTicks(from, to, Math.max(1, room / 34)))
      if (offset) tick(segment.begin + offset * share, `+${bytesText(offset)}`);
  }
  trace.segments.slice(1).forEach((segment, number) => {
    const y = box.yOf((segment.begin + trace.segments[number].end) / 2);
    if (y > box.top && y < box.bottom) line(box.pen, box.left, y, box.right, y, theme.soft, [2, 3]);
  });
}

// Draws the spans that are seen; how many.
function paintSpans(box, spans, view, colourOf) {
  const pen = box.pen;
  let count = 0, colour = null;
  for (let i = 0; i < spans.start.length; i++) {
    if (spans.start[i] > view.last || spans.end[i] < view.first || spans.low[i] > view.high || spans.high[i] < view.low) continue;
    const x0 = box.xOf(Math.max(spans.start[i], view.first)), x1 = box.xOf(Math.min(spans.end[i], view.last));
    const y0 = box.yOf(Math.min(spans.high[i], view.high)), y1 = box.yOf(Math.max(spans.low[i], view.low));
    const next = colourOf(i);
    if (next !== colour) pen.fillStyle = colour = next;
    const width = Math.max(x1 - x0, 0.5), height = Math.max(y1 - y0, 0.5);
    // Blocks that are large enough to be told apart have a line of ground between them.
    const gap = width > 6 && height > 4 ? 0.6 : 0;
    pen.fillRect(x0, y0, width - gap, height - gap);
    count++;
  }
  return count;
}

function paintMap(trace, view, by) {
  const box = mapBox(view);
  const colours = blockColours(trace, by);
  paintSpans(box, trace.mapped, view, () => theme.free);
  paintSpans(box, trace.zombies, view, () => theme.zombie);
  box.canvas.dataset.blocks = paintSpans(box, trace.blocks, view, colours.of);
  timeAxis(box, view.first, view.last);
  addressAxis(box, trace, view);
  frame(box);
  const states = [];
  if (trace.mapped.start.length) states.push([theme.free, "held, free"]);
  if (trace.zombies.start.length) states.push([theme.zombie, "zombie"]);
  legend("map-legend", [...colours.entries, ...states]);
}

function spanAt(spans, ns, place, slackNs, slack) {
  for (let i = spans.start.length - 1; i >= 0; i--) {
    if (ns >= spans.start[i] - slackNs && ns <= spans.end[i] + slackNs && place >= spans.low[i] - slack && place <= spans.high[i] + slack)
      return i;
  }
  return -1;
}

// What is there, in words.
function mapText(trace, view, ns, place, perPixel) {
  const blocks = trace.blocks;
  let i = spanAt(blocks, ns, place, 0, 0);
  if (i < 0) i = spanAt(blocks, ns, place, perPixel.ns, perPixel.place);
  if (i >= 0) {
    const isFreed = Number.isFinite(blocks.end[i]);
    return `${bytesText(blocks.bytes[i])}  (${blocks.bytes[i].toLocaleString("en")} bytes)\n` +
      `at 0x${blocks.address[i].toString(16)}\nstream ${trace.streams[blocks.stream[i]]}\n` +
      `served by ${trace.paths[blocks.path[i]]}\nfrom ${timeText(blocks.start[i], 7)}` +
      (isFreed ? `, for ${timeText(blocks.end[i] - blocks.start[i])}` : ", never freed");
  }
  const address = addressAt(trace.segments, place);
  if (address === null) return null;
  const where = `\nat 0x${Math.round(address).toString(16)}, ${timeText(ns, 7)}`;
  if (spanAt(trace.zombies, ns, place, 0, 0) >= 0) return `zombie: waits to be unmapped${where}`;
  if (spanAt(trace.mapped, ns, place, 0, 0) >= 0) return `held, free${where}`;
  return null;
}

function paintSizes(trace, view) {
  const box = panel("sizes");
  const counts = new Map();
  let low = Infinity, high = -Infinity, most = 0;
  for (let i = 0; i < trace.blocks.start.length; i++) {
    if (trace.blocks.start[i] < view.first || trace.blocks.start[i] > view.last) continue;
    const size = Math.floor(Math.log2(trace.blocks.bytes[i]));
    const name = trace.paths[trace.blocks.path[i]];
    if (!counts.has(size)) counts.set(size, {total: 0});
    const one = counts.get(size);
    one[name] = (one[name] || 0) + 1;
    most = Math.max(most, ++one.total);
    low = Math.min(low, size);
    high = Math.max(high, size);
  }
  const used = new Set();
  const step = (box.right - box.left) / Math.max(high - low + 1, 8);
  for (const [size, one] of counts) {
    const x = box.left + (size - low) * step;
    let y = box.bottom;
    for (const [name, colour] of Object.entries(data.paths)) {
      if (!one[name]) continue;
      const height = one[name] / (most * 1.15) * (box.bottom - box.top);
      box.pen.fillStyle = colour;
      box.pen.fillRect(x + step * 0.1, y - height, step * 0.8, height);
      y -= height;
      used.add(name);
    }
    word(box.pen, one.total.toLocaleString("en"), x + step / 2, y - 8, "center", theme.ink);
    word(box.pen, bytesText(2 ** size), x + step / 2, box.bottom + 13, "center", theme.soft);
  }
  frame(box);
  legend("sizes-legend", Object.entries(data.paths).filter(([name]) => used.has(name)).map(([name, colour]) => [colour, name]));
}
