/* Charts of the last minutes, drawn by uPlot; one without data is not shown. */
const CHARTS = [
  ["Requests a second", rate, [["requests", "finished", "--accent"], ["errors", "failed", "--bad"]]],
  ["Latency that 95 % stay below", seconds, [["p95", "", "--accent"]]],
  ["Items waiting in queues", count, [["queue", "", "--accent"]]],
  ["Steps a second", rate, [["steps", "", "--accent"]]],
  ["Compiles a second", rate, [["compiles", "", "--warn"]]],
  ["Accelerators in use", percent, [["busy", "", "--accent"]], 1],
  ["Memory", bytes, [["device_memory", "devices", "--accent"], ["host_memory", "host", "--warn"]]],
];
const HEIGHT = 130;
/* Seconds that are shown: what there is of the last minutes, in few steps, so that lines seldom move. */
const SPANS = [120, 300, 900];
const spanOf = (low, high) => SPANS.find(one => one >= high - low) || SPANS.at(-1);
const lately = times => "last " + spanOf(times[0], times.at(-1)) / 60 + " minutes";
/* Divisions of an axis of bytes. */
const POWERS = Array.from({length: 48}, (_, i) => 2 ** i);
const colour = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const dark = matchMedia("(prefers-color-scheme: dark)");

class Chart {
  constructor([title, format, series, top]) {
    Object.assign(this, {title, format, series, top, data: null});
    this.value = el("span");
    this.plot = el("div", {className: "plot"});
    this.plot.setAttribute("role", "img");
    this.box = el("div", {className: "card chart", hidden: true}, el("h3", {}, title, " ", this.value), this.plot);
    document.querySelector(".charts").append(this.box);
  }
  show(history) {
    const data = [history.times, ...this.series.map(([name]) => history.series[name])];
    /* One sample alone draws nothing. */
    const empty = !data.slice(1).some(values => values.filter(known).length > 1);
    this.box.hidden = empty;
    if (empty) return false;
    /* A gap in time is a gap in the line, too. */
    this.data = data;
    if (!this.chart) this.draw(); else this.chart.setData(data);
    this.tell(data[0].length - 1);
    return true;
  }
  /* Say the values at *at* in words. */
  tell(at) {
    const said = this.series.map(([, name], i) => [name, this.data[i + 1][at]]).filter(([, value]) => known(value))
      .map(([name, value]) => (this.format(value) + " " + name).trim());
    say(this.value, said.join(", ") || "–");
    const most = Math.max(...this.data.slice(1).flat().filter(known));
    this.plot.setAttribute("aria-label", `${this.title}: now ${said.join(", ") || "unknown"}; at most ${this.format(most)} in the ${lately(this.data[0])}.`);
  }
  draw() {
    this.chart?.destroy();
    const ink = {stroke: colour("--soft"), grid: {stroke: colour("--line"), width: 1}, ticks: {show: false}, font: "12px system-ui"};
    const time = at => new Date(at * 1e3).toTimeString().slice(0, 5);
    this.chart = new uPlot({
      width: this.width(), height: HEIGHT, legend: {show: false}, padding: [8, 18, 0, 0],
      cursor: {sync: {key: "time"}, drag: {x: false, y: false}, y: false, points: {size: 6}},
      hooks: {setCursor: [u => this.tell(u.cursor.idx ?? this.data[0].length - 1)]},
      scales: {x: {range: (u, low, high) => [high - spanOf(low, high), high]}, y: {range: (u, low, high) => [0, this.top ?? (high > 0 ? high * 1.1 : 1)]}},
      axes: [{...ink, size: 24, space: 60, incrs: [60, 120, 300, 600], values: (u, splits) => splits.map(time)},
        {...ink, size: 66, space: 34, ...this.format === bytes && {incrs: POWERS}, values: (u, splits) => splits.map(v => this.format(v))}],
      series: [{}, ...this.series.map(([, , name], i) => ({stroke: colour(name), width: 1.5, dash: i ? [5, 3] : undefined,
        fill: i ? undefined : colour(name) + "1a", points: {show: false}, spanGaps: false}))],
    }, this.data, this.plot);
  }
  width() { return Math.max(this.plot.clientWidth, 120); }
  fit() { if (this.chart && !this.box.hidden) this.chart.setSize({width: this.width(), height: HEIGHT}); }
}

const charts = CHARTS.map(one => new Chart(one));
const chartsOf = byId("charts-of");
let asked = 0;
async function refreshCharts(now) {
  if (!now && Date.now() - asked < 4800) return;
  asked = Date.now();
  const chosen = OF ?? chartsOf.value, of = chosen ? ofWorker(chosen) : "";
  const answer = await fetch("api/history" + of, {cache: "no-store", signal: AbortSignal.timeout(12000)});
  if (!answer.ok) { if (of) chartsOf.value = ""; return; }
  const history = await answer.json();
  byId("charts").hidden = false;
  byId("charts").hidden = charts.filter(chart => chart.show(history)).length === 0;
  if (history.times.length) say(byId("charts-title"), "The " + lately(history.times));
  for (const chart of charts) chart.fit();
}
function offerProcesses(agents) {
  const names = agents.filter(a => a.up).map(a => a.worker), chosen = chartsOf.value;
  chartsOf.hidden = chartsOf.previousElementSibling.hidden = names.length < 2;
  const now = names.map(worker).join("\0");
  if (chartsOf.dataset.names === now) return;
  chartsOf.dataset.names = now;
  chartsOf.replaceChildren(el("option", {value: "", textContent: "all processes"}),
    ...names.map(name => el("option", {value: name, textContent: "worker " + worker(name)})));
  chartsOf.value = names.includes(chosen) ? chosen : "";
}
chartsOf.onchange = () => refreshCharts(true).catch(() => {});
dark.addEventListener("change", () => charts.forEach(chart => chart.chart && chart.draw()));
let fitting = 0;
new ResizeObserver(() => {
  cancelAnimationFrame(fitting);
  fitting = requestAnimationFrame(() => charts.forEach(chart => chart.fit()));
}).observe(document.querySelector(".charts"));
