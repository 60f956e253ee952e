// SPDX-License-Identifier: MIT
// What the page knows: the traces in it, decoded, and how sizes and times are written.
const data = JSON.parse(document.getElementById("data").textContent);

const KINDS = {f8: Float64Array, u2: Uint16Array, u1: Uint8Array};

function decoded(packed) {
  const letters = atob(packed.data);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return new KINDS[packed.kind](bytes.buffer);
}

function decodeAll(value) {
  if (value === null || typeof value !== "object") return value;
  if ("kind" in value && "data" in value && value.kind in KINDS) return decoded(value);
  for (const key of Object.keys(value)) value[key] = decodeAll(value[key]);
  return value;
}

const traces = decodeAll(data.traces);

function bytesText(bytes) {
  let place = 0;
  while (place + 1 < data.units.length && Math.abs(bytes) >= (place === 0 ? 1000 : 999.5)) {
    bytes /= 1024;
    place++;
  }
  const digits = Math.max(0, 2 - Math.floor(Math.log10(Math.max(Math.abs(bytes), 1))));
  return `${+bytes.toFixed(digits)} ${data.units[place]}`;
}

function timeText(ns, most = 4) {
  let chosen = data.times[0];
  for (const unit of data.times) if (Math.abs(ns) >= unit[1]) chosen = unit;
  return `${+(ns / chosen[1]).toPrecision(most)} ${chosen[0]}`;
}

function byteTicks(low, high, most) {
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(high - low, 1) / most)));
  const ticks = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high; tick += step) ticks.push(tick);
  return ticks;
}

// Round moments between the two, and their unit.
function timeTicks(first, last, most) {
  let unit = data.times[0];
  for (const one of data.times) if (last - first >= 2 * one[1]) unit = one;
  const rough = (last - first) / unit[1] / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough) * power * unit[1];
  const ticks = [];
  for (let number = Math.ceil(first / step); number * step <= last; number++) ticks.push(number * step);
  return {ticks, name: unit[0], text: (tick) => String(+(tick / unit[1]).toPrecision(10))};
}

// The place in an ascending array of the last element that is not above the value; -1: all are.
function lastUpTo(array, value) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

function levelAt(steps, ns) {
  const place = lastUpTo(steps.when, ns);
  return place < 0 ? 0 : steps.level[place];
}

// Where on the axis of addresses (0 to 1) one is, and back. Gaps between segments are left out.
function placeOf(segments, address) {
  let found = segments[0];
  for (const segment of segments) if (segment.address <= address) found = segment;
  const share = Math.min(Math.max((address - found.address) / found.bytes, 0), 1);
  return found.begin + share * (found.end - found.begin);
}

function addressAt(segments, place) {
  for (const segment of segments) {
    if (place >= segment.begin && place <= segment.end)
      return segment.address + (place - segment.begin) / (segment.end - segment.begin) * segment.bytes;
  }
  return null;
}

// The end of a range belongs to the segment of its beginning.
function endPlaceOf(segments, address, bytes) {
  let found = segments[0];
  for (const segment of segments) if (segment.address <= address) found = segment;
  const share = Math.min((address + bytes - found.address) / found.bytes, 1);
  return found.begin + share * (found.end - found.begin);
}

function addPlaces(trace, spans) {
  spans.low = Float64Array.from(spans.address, (address) => placeOf(trace.segments, address));
  spans.high = Float64Array.from(spans.address, (address, i) => endPlaceOf(trace.segments, address, spans.bytes[i]));
}

for (const trace of traces) for (const spans of [trace.blocks, trace.mapped, trace.zombies]) addPlaces(trace, spans);
