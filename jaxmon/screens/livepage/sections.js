/* What the tables show. */
const bad = v => ({text: count(v), tone: v ? "bad" : "zero"});
const state = (up, word, note) => ({text: word, note, dot: up ? "good" : "bad", tone: up ? "" : "bad"});
const several = names => names.length > 1 ? names.length + " processes" : names.length ? "worker " + worker(names[0]) : "";
const quantiles = (of, usual) => !of ? plain("–") : {
  text: [of.p50, of.p95, of.p99].map(estimate).join(" · "), note: known(usual) ? "95 % before: " + estimate(usual) : ""};
function memory(used, size) {
  const share = part(used, size);
  return {text: bytes(used), note: known(size) ? "of " + bytes(size) : "", bar: share,
    tone: share > .95 ? "bad" : share > .8 ? "warn" : ""};
}

const REQUESTS = [
  ["Route", null, r => ({text: r.route, note: several(r.workers)})],
  ["Requests/s", null, r => ({text: rate(r.rate), note: count(r.total) + " in all"})],
  ["Failed", null, r => ({text: percent(r.error_ratio), tone: r.error_ratio > 0 ? r.error_ratio >= .01 ? "bad" : "warn" : "",
    note: r.failed ? count(r.failed) + " in all" : ""})],
  ["Warm: 50 · 95 · 99 %", null, r => quantiles(r.warm, r.usual_p95)],
  ["Waited for a compile", null, r => ({text: percent(r.cold_ratio), tone: r.cold_ratio >= .05 ? "warn" : "",
    note: r.cold ? "95 % within " + estimate(r.cold.p95) : ""})],
  ["In progress", null, r => ({text: count(r.in_progress), tone: r.oldest >= 60 ? "bad" : "",
    note: r.in_progress ? "oldest " + seconds(r.oldest) : ""})],
];
const LOOPS = [
  ["Loop", null, l => ({text: l.loop, note: several(l.workers)})],
  ["Steps/s", null, l => ({text: rate(l.rate), note: count(l.steps) + " in all"})],
  ["Step: mean · 95 %", null, l => ({text: known(l.mean) ? seconds(l.mean) + " · " + estimate(l.p95) : "–",
    note: known(l.usual) ? "mean before: " + seconds(l.usual) : ""})],
  ["Data wait", null, l => ({text: percent(l.data_wait_ratio), tone: l.data_wait_ratio > .3 ? "warn" : ""})],
  ["Goodput", null, l => plain(percent(l.goodput))],
  ["Last step", null, l => ({text: known(l.age) ? seconds(l.age) + " ago" : "ended", tone: l.age >= 60 ? "bad" : "",
    note: l.workers.length > 1 && known(l.age) ? "worker " + worker(l.age_worker) : ""})],
];
const QUEUES = [
  ["Queue", null, q => ({text: q.queue, note: several(q.workers)})],
  ["Waiting now", null, q => plain(count(q.depth))],
];
const BATCHES = [
  ["Batches of", null, b => ({text: b.route, note: several(b.workers)})],
  ["Batches/s", null, b => ({text: rate(b.rate), note: count(b.total) + " in all"})],
  ["Filled", null, b => ({text: percent(b.fill), bar: b.fill, tone: known(b.fill) && b.fill < .5 ? "warn" : ""})],
];
const ERRORS = [
  ["Function", null, e => ({text: e.function, note: several(e.workers)})],
  ["Kind", null, e => plain(e.kind.replaceAll("_", " ")), "text"],
  ["Count", null, e => bad(e.count)],
];
const AGENTS = [
  ["Process", null, (a, s) => ({text: known(a.pid) ? "pid " + a.pid : "worker " + a.worker,
    href: s.whole ? ofWorker(a.worker) : "", note: [known(a.pid) && "worker " + a.worker, known(a.rank?.index) && "rank " + a.rank.index + " of " + a.rank.count, a.program].filter(Boolean).join(" · ")})],
  ["State", null, a => a.died ? state(false, a.unrecorded ? "ended" : "crashed") : state(a.up, a.up ? "up" : "not responding")],
  ["Up for", null, a => plain(seconds(a.age))],
  ["JAX", null, a => ({text: known(a.jax) ? a.jax + (a.platform ? " · " + a.platform : "") : "–", note: a.release && "release " + a.release})],
  ["Host memory", null, a => plain(bytes(a.resident_bytes))],
  ["Compiling now", null, a => ({text: count(a.compiles_in_progress), note: a.compile_oldest >= 1 ? "for " + seconds(a.compile_oldest) : ""})],
];
const FUNCTIONS = [
  ["Function", f => f.name, f => ({text: f.name, note: f.note || ""})],
  ["Calls/s", f => f.rate, f => plain(rate(known(f.hits) ? f.rate : null))],
  ["Calls", f => f.calls, f => plain(count(known(f.hits) ? f.calls : null))],
  ["Hit rate", f => f.hit_rate, f => ({text: percent(f.hit_rate),
    tone: known(f.hit_rate) && f.calls > 20 && f.hit_rate < .95 ? "warn" : ""})],
  ["Compiles", f => f.compiles, f => ({text: count(f.compiles), note: f.loads ? count(f.loads) + " loaded" : ""})],
  ["Recompiles", f => f.recompiles, f => ({text: count(f.recompiles), tone: f.recompiles ? "" : "zero",
    note: Object.entries(f.causes).sort((a, b) => b[1] - a[1]).slice(0, 2).map(c => c[0].replaceAll("_", " ")).join(", ")})],
  ["Compile time", f => f.compile_seconds, f => plain(seconds(f.compile_seconds))],
  ["Errors", f => f.errors, f => bad(f.errors)],
];
const ACCELERATORS = [
  ["Accelerator", null, a => ({text: a.index + " · " + a.model, note: a.uuid})],
  ["State", null, a => known(a.up) ? state(a.up, a.up ? "up" : "lost") : plain("–")],
  ["Utilization", null, a => ({text: known(a.utilization) ? fixed(a.utilization * 100, 0) + " %" : "–", bar: a.utilization})],
  ["Memory", null, a => memory(a.memory_used, a.memory_size)],
  ["Temperature", null, a => plain(known(a.temperature) ? whole.format(a.temperature) + " °C" : "–")],
  ["Power", null, a => ({text: known(a.power) ? whole.format(a.power) + " W" : "–", note: known(a.power_limit) ? "of " + whole.format(a.power_limit) + " W" : ""})],
];
const DEVICES = [
  ["Device", null, d => ({text: "worker " + d.worker + " · device " + d.device, note: d.kind})],
  ["Memory in use", null, d => memory(d.memory_in_use, d.memory_limit)],
  ["Live arrays", null, d => plain(count(d.live_arrays))],
  ["In live arrays", null, d => plain(bytes(d.live_array_bytes))],
];
const COLLECTORS = [
  ["Collector", null, c => plain(c.name)],
  ["State", null, c => !c.polled ? plain("first poll")
    : c.absent ? {text: "not present", note: c.message, dot: "none", tone: "zero"}
    : state(c.success, c.success ? "working" : c.reason.replaceAll("_", " "), c.message), "text"],
  ["Data age", null, c => plain(seconds(c.age))],
  ["Poll duration", null, c => plain(seconds(c.duration))],
];

/* The user's functions, and JAX's own as one. */
function folded(functions) {
  const own = functions.filter(f => f.internal), users = functions.filter(f => !f.internal);
  if (!own.length) return users;
  const one = {name: "JAX's own functions", last: true, note: count(own.length) + (own.length > 1 ? " functions" : " function"),
    rate: null, hits: null, hit_rate: null, causes: {}};
  for (const name of ["calls", "compiles", "loads", "recompiles", "compile_seconds", "errors"]) one[name] = sum(own, f => f[name]) || 0;
  for (const f of own) for (const [cause, n] of Object.entries(f.causes)) one.causes[cause] = (one.causes[cause] || 0) + n;
  return [...users, one];
}
const omitted = n => ({name: count(n) + " more", last: true, note: "not shown; the metrics have them", rate: null, calls: null, hits: null,
  hit_rate: null, compiles: null, loads: 0, recompiles: null, compile_seconds: null, errors: null, causes: {}});
const why = (summary, name) => {
  const found = summary.collectors.find(c => c.name === name);
  return !found ? "The " + name + " collector is disabled." : (found.message || "Nothing found yet") + ".";
};
const instrument = summary => [
  p(el("strong", {textContent: "No instrumented process on this host yet."})),
  p("Add two lines to your program, before it starts to compute:"),
  el("pre", {textContent: "import jaxmon\njaxmon.instrument()"}),
  p("or leave it as it is and start it with ", code("jaxmon run train.py"), ". It shows up here within seconds."),
  p("Still empty? Process and sidecar must share the run directory: this one looks in ", code(summary.run_dir), "."),
];
const FEW = 12;
const LAST_MINUTE = "Rates and times of the last minute, or since a process started; counts since then, ended processes of its slot included.";
/* Each is [table, its rows, whether the page of one process has it too]. */
const tables = [
  [new Table("requests", "Requests", LAST_MINUTE, REQUESTS, {most: FEW}), s => s.requests, true],
  [new Table("loops", "Steps", LAST_MINUTE + " The slowest process counts.", LOOPS, {most: FEW}), s => s.loops, true],
  [new Table("queues", "Queues", "Items waiting in queues of the programs.", QUEUES, {most: FEW}), s => s.queues, true],
  [new Table("batches", "Batches", "Requested items as a part of the batches' capacity, in the last minute.", BATCHES, {most: FEW}), s => s.batches, true],
  [new Table("errors", "Errors", "Exceptions of jitted calls, and uncaught ones, since the processes started, ended ones of their slots included.", ERRORS, {most: FEW}), s => s.errors, true],
  [new Table("agents", "Processes", "Instrumented processes.", AGENTS, {most: FEW, empty: instrument}), s => s.agents, true],
  [new Table("functions", "Functions", "Jitted functions, since the processes started, ended ones of their slots included; calls a second since this page was opened, of a minute at most.", FUNCTIONS, {sort: 6, most: 15,
    empty: s => s.agents.some(a => a.up) ? [p("No jitted function was called yet.")] : []}),
    s => [...folded(s.functions), ...s.functions_omitted ? [omitted(s.functions_omitted)] : []], true],
  [new Table("accelerators", "Accelerators", "As reported by the driver, all processes together.", ACCELERATORS,
    {most: 16, empty: s => [p("No accelerator. ", why(s, "nvml"))]}), s => s.accelerators],
  [new Table("devices", "JAX devices", "As reported by JAX in each process; memory of that process only.", DEVICES,
    {most: FEW, empty: s => s.agents.length ? [p("No process has reported a device.")] : []}), s => s.devices, true],
  [new Table("collectors", "Collectors", "Data sources of this sidecar.", COLLECTORS,
    {empty: () => [p("All collectors are disabled; remove a --disable option.")]}), s => s.collectors],
];
