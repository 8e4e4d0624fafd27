"use strict";
/* Text of numbers, and elements. */
const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const short = new Intl.NumberFormat("en-US", {notation: "compact", maximumFractionDigits: 1});
const known = v => v !== null && v !== undefined;
const fixed = (v, digits) => v.toFixed(digits);
const count = v => !known(v) ? "–" : v < 1e6 ? whole.format(v) : short.format(v);
const percent = v => !known(v) ? "–" : v >= 1 ? "100 %" : v === 0 ? "0 %"
  : v > .99 ? fixed(Math.floor(v * 1e4) / 100, 2) + " %" : fixed(v * 100, 1) + " %";
const seconds = v => !known(v) ? "–" : v === 0 ? "0 s" : v < 1 ? fixed(v * 1e3, v < .01 ? 1 : 0) + " ms"
  : v < 100 ? fixed(v, 1) + " s" : v < 7200 ? fixed(v / 60, 1) + " min"
  : v < 172800 ? fixed(v / 3600, 1) + " h" : fixed(v / 86400, 1) + " d";
/* Of a histogram, which has two digits at most. */
const estimate = v => known(v) ? "~" + seconds(Number(v.toPrecision(2))) : "–";
const bytes = v => {
  if (!known(v)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (v >= 1024 && unit < 4) { v /= 1024; unit++; }
  return fixed(v, unit && v < 100 ? 1 : 0) + " " + units[unit];
};
const rate = v => !known(v) ? "–" : v === 0 ? "0" : v < .095 ? fixed(v, 2) : v < 10 ? fixed(v, 1) : count(v);
const part = (a, b) => known(a) && b ? a / b : null;
const sum = (rows, of) => {
  const values = rows.map(of).filter(known);
  return values.length ? values.reduce((a, b) => a + b, 0) : null;
};
/* The process that the page is about, if the sidecar shows one alone. */
const OF = new URLSearchParams(location.search).get("worker");
const ofWorker = name => "?worker=" + encodeURIComponent(name);
const byId = id => document.getElementById(id);
/* A number and its unit stay on a line. */
const bound = text => typeof text === "string" ? text.replace(/{{units}}/g, "$1\u00a0") : text;
function say(node, text) { text = bound(text); if (node.textContent !== text) node.textContent = text; }

/* Styled as blocks on a phone, tables keep their meaning only by role. */
const ROLES = {table: "table", thead: "rowgroup", tbody: "rowgroup", tr: "row", td: "cell"};
const TYPED = ["kbd", "pre"];
function el(tag, props = {}, ...children) {
  const node = Object.assign(document.createElement(tag), props);
  if (ROLES[tag]) node.role = ROLES[tag];
  if (props.textContent && !TYPED.includes(tag)) say(node, props.textContent);
  node.append(...children.map(bound));
  return node;
}
const p = (...parts) => el("p", {}, ...parts);
/* A text with commands between backticks. */
const prose = text => text.split("`").map((one, i, all) => all.length % 2 && i % 2 ? el("kbd", {textContent: one}) : all.length % 2 || !i ? one : "`" + one);
const code = text => el("code", {textContent: text});

/* What processes are called: ten of 64 say enough. */
let pids = new Map(), processes = 0;
const NAMED = 6;
const worker = name => name + (pids.has(name) ? " (pid " + pids.get(name) + ")" : "");
const workers = names => names.length > 2 && names.length === processes ? "All " + names.length + " processes" : (names.length > 1 ? "Workers " : "Worker ")
  + (names.length > 1 ? names.slice(0, NAMED).join(", ") : names.map(worker).join(""))
  + (names.length > NAMED ? " and " + (names.length - NAMED) + " more" : "");
