/*
 * A table in a section of its own.
 * A column is [heading, value for sorting, cell]; a cell is {text, href, note, tone, bar, dot}.
 */
/* A name breaks behind its dots rather than within a word. */
function named(node, text) {
  if (node.textContent !== text) node.replaceChildren(...(text.match(/[^.]*\.|[^.]+/g) || []).flatMap(one => [one, el("wbr")]));
}
/* On a phone a list sorts, as headings are out of sight. */
const narrow = matchMedia("(max-width: 700px)");
const plain = text => ({text});
class Table {
  constructor(id, title, caption, columns, {empty, sort, most = Infinity} = {}) {
    Object.assign(this, {columns, empty, sort, most, down: true, rows: []});
    this.body = el("tbody");
    this.heads = columns.map(([name, by, , kind], i) => {
      const head = el("th", {scope: "col", role: "columnheader", className: kind || ""});
      if (sort === undefined) say(head, name);
      else head.append(el("button", {type: "button", textContent: name, onclick: () => this.by(i)}));
      return head;
    });
    this.table = el("table", {id}, el("caption", {textContent: caption}), el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    this.none = el("div", {className: "empty"});
    this.more = el("button", {type: "button", className: "more", hidden: true, onclick: () => {
      this.most = Infinity;
      this.show(this.rows, this.summary);
      this.body.rows[this.shown]?.cells[0].focus();
    }});
    const bar = el("div", {className: "head"}, el("h2", {id: id + "-title", textContent: title}));
    if (sort !== undefined) {
      this.pick = el("select", {onchange: () => this.by(+this.pick.value)}, ...columns.map(([name], i) => el("option", {value: i, textContent: name})));
      bar.append(el("label", {textContent: "Sort by"}, this.pick));
      const reach = () => this.heads.forEach(head => { head.firstChild.tabIndex = narrow.matches ? -1 : 0; });
      narrow.addEventListener("change", reach);
      reach();
    }
    this.section = el("section", {hidden: true}, bar, el("div", {className: "card"}, this.table, this.none, this.more));
    this.section.setAttribute("aria-labelledby", id + "-title");
    byId("main").append(this.section);
    this.mark();
  }
  by(column) {
    this.down = column === this.sort ? !this.down : column !== 0;
    this.sort = column;
    this.mark();
    this.show(this.rows, this.summary);
  }
  mark() {
    if (!this.pick) return;
    this.heads.forEach((head, i) => i === this.sort
      ? head.setAttribute("aria-sort", this.down ? "descending" : "ascending") : head.removeAttribute("aria-sort"));
    this.pick.value = this.sort;
  }
  show(rows, summary) {
    Object.assign(this, {rows, summary});
    const none = !rows.length && this.empty?.(summary) || [];
    this.section.hidden = !rows.length && !none.length;
    this.table.hidden = !rows.length;
    this.none.hidden = rows.length > 0;
    if (this.pick) this.pick.parentNode.hidden = !rows.length;
    this.none.replaceChildren(...none);
    if (this.sort !== undefined) {
      const value = this.columns[this.sort][1], sign = this.down ? -1 : 1;
      rows = [...rows].sort((a, b) => {
        if (a.last !== b.last) return a.last ? 1 : -1;
        const x = value(a) ?? -1, y = value(b) ?? -1;
        return sign * (typeof x === "string" ? x.localeCompare(y) : x - y);
      });
    }
    /* A few more than fit are no reason to hide any. */
    const few = rows.length <= this.most * 1.25, shown = few ? rows : rows.slice(0, this.most);
    if (!few && rows.at(-1).last) shown.push(rows.at(-1));
    this.more.hidden = few;
    if (!few) { say(this.more, "Show all " + rows.length); this.shown = shown.length; }
    while (this.body.rows.length > shown.length) this.body.lastChild.remove();
    shown.forEach((row, i) => this.fill(this.body.rows[i] || this.add(), row, summary));
  }
  add() {
    const cells = this.columns.map(([name, , , kind], i) => {
      const cell = el(i ? "td" : "th", {className: kind || ""}, el("span"), el("small"));
      if (i) cell.dataset.label = bound(name); else Object.assign(cell, {scope: "row", role: "rowheader", tabIndex: -1});
      return cell;
    });
    return this.body.appendChild(el("tr", {}, ...cells));
  }
  fill(tr, row, summary) {
    this.columns.forEach(([, , make, kind], i) => {
      const {text, href = "", note = "", tone = "", bar, dot = ""} = make(row, summary), cell = tr.cells[i];
      const [value, small] = cell.children;
      if (href) {
        const link = value.firstElementChild || value.appendChild(el("a"));
        say(link, text);
        if (link.getAttribute("href") !== href) link.setAttribute("href", href);
      } else if (i) say(value, text);
      else named(value, text);
      say(small, note);
      small.hidden = !note;
      const look = dot ? "dot " + dot : "", name = [kind, tone, known(bar) && "bar"].filter(Boolean).join(" ");
      if (value.className !== look) value.className = look;
      if (cell.className !== name) cell.className = name;
      if (known(bar)) cell.style.setProperty("--part", Math.min(100, bar * 100) + "%");
    });
  }
}
