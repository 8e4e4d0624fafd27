/* The answer, the last minute, and all refreshes. */
const EVERY = 2000, EVERY_OF_PROCESS = 5000, TIMEOUT = 12000, WINDOW = 60;
const WORDS = {failing: "No", degraded: "Not quite", fine: "Yes", unknown: "Not known"};
let heard = "";
function showAnswer({state, question, text, reasons, advice}, summary) {
  const box = byId("answer");
  if (box.className !== state) box.className = state;
  if (question) say(byId("answer-title"), question);
  say(byId("answer-text"), text);
  const now = JSON.stringify([reasons, advice, [...pids]]);
  if (now === heard) return;
  heard = now;
  const list = byId("answer-more"), single = summary.agents.length < 2;
  const where = reasons.length && !single ? reasons[0].workers : [], because = reasons[0]?.because || "";
  say(byId("answer-because"), because);
  byId("answer-because").hidden = !because;
  say(byId("answer-where"), where.length ? workers(where) : "");
  byId("answer-where").hidden = !where.length;
  const told = reasons.slice(1).map(r => el("li", {}, el("span", {className: "tag " + r.state, textContent: WORDS[r.state]}), " ",
    r.text, ...r.because ? [" ", el("span", {className: "because", textContent: r.because})] : [], ...r.workers.length && !single ? [el("small", {textContent: workers(r.workers)})] : []));
  list.replaceChildren(...told.slice(0, 10), ...told.length > 10 ? [el("li", {textContent: told.length - 10 + " more."})] : []);
  list.hidden = !told.length;
  say(byId("answer-advice"), advice);
  byId("answer-advice").hidden = !advice;
}

function showMinute(summary) {
  const requests = summary.requests, rates = sum(requests, r => r.rate), recent = sum(requests, r => r.recent);
  const failed = part(sum(requests, r => r.recent_failed), recent), running = summary.loops.filter(l => known(l.age));
  const slowest = Math.max(...requests.map(r => r.latency?.p95).filter(known)), compiling = sum(summary.agents, a => a.compiles_in_progress);
  const errors = (sum(requests, r => r.failed) || 0) + summary.totals.errors + summary.totals.failed_compiles;
  say(byId("t-requests"), rate(rates));
  const hangs = r => summary.answer.reasons.some(of => of.kind === "hanging" && of.subject === r.route);
  const stuck = sum(requests.filter(hangs), r => r.in_progress);
  say(byId("t-failed"), percent(failed) + (stuck ? " · " + count(stuck) + " hang" : ""));
  say(byId("t-p95"), estimate(Number.isFinite(slowest) ? slowest : null));
  say(byId("t-steps"), rate(running.length ? Math.min(...running.map(l => l.rate ?? Infinity)) : null).replace("∞", "–"));
  say(byId("t-compiling"), count(compiling));
  say(byId("t-errors"), summary.agents.length ? count(errors) : "–");
  byId("t-failed").className = failed >= .01 || stuck ? "bad" : "";
  byId("t-errors").className = errors ? "bad" : "";
}

const past = [];
function addRates(summary) {
  past.push({time: summary.time, calls: new Map(summary.functions.map(f => [f.name, f.calls]))});
  while (past.length > 2 && summary.time - past[1].time >= WINDOW) past.shift();
  const first = past[0], passed = summary.time - first.time;
  for (const f of summary.functions) {
    const before = first.calls.get(f.name);
    f.rate = passed > 0 && known(before) ? Math.max(0, f.calls - before) / passed : null;
  }
}

let last = null, every = EVERY, source = "sidecar";
function show(summary) {
  addRates(summary);
  last = new Date();
  source = summary.whole || OF !== null ? "sidecar" : "process";
  every = source === "sidecar" ? EVERY : EVERY_OF_PROCESS;
  processes = summary.agents.length;
  pids = new Map(summary.agents.filter(a => known(a.pid)).map(a => [a.worker, a.pid]));
  showAnswer(summary.answer, summary);
  showMinute(summary);
  showFindings(summary);
  offerProcesses(summary.agents);
  for (const [table, rows, own] of tables) if (summary.whole || own) table.show(rows(summary), summary);
  say(byId("version"), summary.version);
  byId("lost").hidden = true;
  byId("main").classList.remove("stale");
  const up = summary.agents.filter(a => a.up).length;
  byId("state").className = "live";
  const only = summary.agents[0], called = known(only?.pid) ? "pid " + only.pid : "worker " + only?.worker;
  const live = summary.whole ? up + (up === 1 ? " process" : " processes") : called;
  say(byId("state"), "live · " + live);
  document.title = WORDS[summary.answer.state] + " · jaxmon · " + live;
}
function lose() {
  const since = last ? " Data is from " + last.toLocaleTimeString() + "." : "";
  say(byId("lost"), "The " + source + " is not responding." + since + " Retrying every " + every / 1000 + " s.");
  byId("lost").hidden = false;
  byId("main").classList.add("stale");
  byId("state").className = "lost";
  say(byId("state"), "unreachable");
  document.title = "jaxmon · unreachable";
}

function ended() {
  lose();
  say(byId("lost"), "Worker " + OF + " does not run here." + (last ? " Data is from " + last.toLocaleTimeString() + "." : ""));
  say(byId("state"), "ended");
  document.title = "jaxmon · ended";
}

byId("everything").hidden = OF === null;
async function refresh() {
  try {
    const answer = await fetch("api/summary" + (OF === null ? "" : ofWorker(OF)), {cache: "no-store", signal: AbortSignal.timeout(TIMEOUT)});
    if (answer.status === 404) ended();
    else if (!answer.ok) throw new Error("status " + answer.status);
    else {
      show(await answer.json());
      await refreshCharts();
    }
  } catch { lose(); }
  setTimeout(refresh, every);
}
refresh();
