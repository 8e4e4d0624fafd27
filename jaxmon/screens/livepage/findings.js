/* Findings, the most urgent first; one that several processes have is shown once. */
const MOST = 20, FIRST = 3;
const URGENCY = ["failure", "time", "hint", "note"];
const first = (a, b) => URGENCY.indexOf(a.urgency) - URGENCY.indexOf(b.urgency) || b.seconds - a.seconds;
const key = (f, place) => [f.topic, f.subject, f.where, place].join("\0");
function ranked(summary) {
  const found = new Map(summary.findings.shared.map(f => [key(f, 0), f]));
  for (const a of summary.agents) {
    const places = {};
    for (const f of a.findings || []) {
      const name = key(f), place = places[name] = (places[name] ?? -1) + 1;
      const mine = {...f, workers: [a.worker], observed: a.observed_seconds}, same = found.get(key(f, place));
      if (!same) found.set(key(f, place), mine);
      else if (!same.workers.includes(a.worker)) {
        const [most, other] = first(same, mine) > 0 ? [mine, same] : [same, mine];
        found.set(key(f, place), {...most, workers: [...most.workers, ...other.workers]});
      }
    }
  }
  return [...found.values()].sort(first);
}
function finding(f, runbooks) {
  const gain = f.urgency === "time" && f.seconds > 0 && f.observed ?
    "To win back: up to " + percent(Math.min(1, f.seconds / f.observed)) + " of the time" : "";
  const several = f.workers.length > 1 ? "; figures of worker " + f.workers[0] : "";
  const facts = el("small", {textContent: [workers(f.workers) + several, f.where, gain, f.panel].filter(Boolean).join(" · ")});
  if (f.runbook) facts.append(" · ", el("a", {href: runbooks + encodeURIComponent(f.runbook) + ".md", rel: "noreferrer", textContent: "Runbook " + f.runbook}));
  return el("li", {}, el("div", {}, el("span", {className: "tag " + f.urgency, textContent: f.urgency}), " ", el("strong", {textContent: f.verdict})),
    ...f.evidence.map(code), ...f.action ? [el("div", {}, ...prose(f.action))] : [], facts);
}
/* What is said of a process besides its findings and the answer, by importance. */
const SAID = [a => a.trouble ? [" " + a.trouble + "."] : [], a => a.notes.map(note => ": " + note), 
  (a, answer) => a.verdict && !answer.includes(a.verdict) ? [": " + a.verdict] : []];
let shown = "", all = false;
function showFindings(summary) {
  const {trouble, age, runbooks} = summary.findings, box = byId("findings"), found = ranked(summary);
  say(byId("findings-age"), known(age) ? "read " + whole.format(age) + " s ago" : "");
  const quiet = trouble && summary.agents.length ? ["Findings are " + trouble + "."] : [];
  const said = SAID.map(of => a => of(a, summary.answer.text));
  for (const of of said) for (const text of new Set(summary.agents.flatMap(of)))
    quiet.push(workers(summary.agents.filter(a => of(a).includes(text)).map(a => a.worker)) + text);
  if (found.length > MOST) quiet.unshift(found.length - MOST + " more are in the summary as JSON.");
  box.hidden = !found.length && !quiet.length;
  const now = JSON.stringify([found, quiet, all]);
  if (now === shown) return;  /* what is selected stays selected */
  shown = now;
  const few = found.slice(0, all || found.length <= FIRST + 1 ? MOST : FIRST);
  const items = note => few.filter(f => (f.urgency === "note") === note).map(f => finding(f, runbooks));
  box.querySelector("ol").replaceChildren(...items(false), ...quiet.map(text => el("li", {}, ...prose(text))), ...items(true));
  const more = box.querySelector("button"), hidden = Math.min(found.length, MOST) - few.length;
  more.hidden = hidden <= 0;
  more.onclick = () => { all = true; showFindings(summary); box.querySelectorAll("li")[few.length]?.scrollIntoView({block: "nearest"}); };
  say(more, "Show " + hidden + " more findings");
}
